"""A worker that is sent SIGTERM at random moments, again and again, answers every item and leaves none behind."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from celery.result import AsyncResult

from tests.chaos import wishes
from tests.chaos.havoc import see_off
from tests.chaos.verdict import read_runs, times_again
from tests.support.apps.chaotic import RUNS, answer
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.alone

#: Items that are sent in each round.
ITEMS = 100

#: Seconds from the first item of a round until the signal, at most; the items take about as long.
MOST_S = 1.2

#: Seconds for a round on a busy machine, and for the last worker to do what is left.
ROUND_S, LAST_S = 12.0, 90.0


@pytest.mark.timeout(wishes.ROUNDS * ROUND_S + LAST_S)
@pytest.mark.parametrize("seed", wishes.SEEDS[:1])
def test_sigterm_at_random_moments(
    seed: int,
    open_site: Callable[..., LiveSite],
    start_worker: Callable[..., WorkerProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every worker ends with 0 and leaves no process, every item has its answer, and none is pending."""
    chance = random.Random(seed)
    live = open_site()
    model = live.app("chaotic").tasks["chaotic.model"]
    results: list[AsyncResult] = []

    done: Counter[str] = Counter()
    with wishes.repeatable(seed, "test_sigterm", done):
        for _ in range(wishes.ROUNDS):
            worker = start_worker("chaotic", site=live, pool=wishes.POOL, env={RUNS: str(tmp_path)})
            moment = time.monotonic() + chance.uniform(0, MOST_S)
            results += [model.delay(x, "good") for x in range(len(results), len(results) + ITEMS)]
            wait_until(lambda until=moment: time.monotonic() >= until, "the moment comes", MOST_S + 1)
            worker.signal(signal.SIGTERM)
            see_off(worker)
            done["SIGTERM"] += 1
        unanswered = sum(not result.ready() for result in results)
        last = start_worker("chaotic", site=live, pool=wishes.POOL, env={RUNS: str(tmp_path)})

        assert [answer(x) for x in range(wishes.ROUNDS * ITEMS)] == [result.get(timeout=LAST_S) for result in results]
        wait_until(lambda: not live.leftovers(), "none is pending", saw=live.leftovers)
        last.signal(signal.SIGTERM)
        see_off(last)
    with capsys.disabled():
        print(  # noqa: T201 - what a person looks at
            f"\nseed {seed}: SIGTERM {wishes.ROUNDS}, results {len(results)},"
            f" for the last worker {unanswered}, duplicates {times_again(read_runs(tmp_path), 'end')}"
        )
