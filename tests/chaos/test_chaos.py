"""Whatever happens to workers and Redis, every caller gets the answer or the error of its own item, and nothing stays.

What happens is drawn from a seed. `make chaos` runs many long ones; see `wishes` for what it can be told.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.chaos import callers, wishes
from tests.chaos.callers import Call, outcomes
from tests.chaos.havoc import Havoc
from tests.chaos.plan import EVENTS, RATE, Plan, make_plan
from tests.chaos.verdict import Verdict, read_runs
from tests.support.apps.chaotic import RUNS
from tests.support.child_process import ChildProcess
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.worker_process import ROOT, WorkerProcess

pytestmark = pytest.mark.alone

#: So soon others take what a killed worker held.
BACK = {"batching_lease": 2}

#: Celery's setting for a result backend that may be away for a moment: else a result that cannot
#: be stored becomes the failure of its item, with the error of the connection.
PATIENT = {"result_backend_always_retry": True}

#: Seconds after the last answer until nothing is unacked: the time above and the items' runs.
SETTLE_S = 30.0

#: Seconds for everything around the items: starts, ends, late events, and patience.
AROUND_S = 200.0

#: Redis loses nothing that it has answered.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.timeout(wishes.ITEMS / RATE + AROUND_S)
@pytest.mark.parametrize("seed", wishes.SEEDS)
def test_chaos(
    seed: int,
    start_redis: Callable[..., RedisServer],
    open_site: Callable[..., LiveSite],
    start_worker: Callable[..., WorkerProcess],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every caller has its right answer or its own error, nothing is unacked, and every key expires."""
    plan = plan_of(seed)
    redis = start_redis(*DURABLE)
    live = open_site(redis=redis, settings={**BACK, **PATIENT})
    runs = tmp_path / "runs"
    runs.mkdir()

    def start() -> WorkerProcess:
        return start_worker("chaotic", site=live, pool=wishes.POOL, env={RUNS: str(runs)}, wait_ready=False)

    done: Counter[str] = Counter()
    with wishes.repeatable(seed, "test_chaos", done):
        havoc = Havoc(live, redis, start, done)
        with calling(live, plan, tmp_path) as program:
            calls = wreak(havoc, plan, program)
        verdict = Verdict(plan, calls, read_runs(runs), havoc.killed)
        with capsys.disabled():
            print(f"\n{verdict.summary(done)}")  # noqa: T201 - what a person looks at
        refuse("callers got", verdict.wrong(verdict.got()))
        havoc.until(lambda: not live.leftovers(), "nothing is unacked, every key expires", SETTLE_S)
        havoc.end()
        # Whatever ran twice has not made a right result wrong.
        refuse("the backend keeps", verdict.wrong(outcomes(live.app("chaotic"), range(len(plan.items)))))
        assert [] == live.leftovers()


def refuse(who: str, wrong: list[str]) -> None:
    """Fail with a line for each wrong item."""
    if wrong:
        pytest.fail("\n".join([who, *wrong]))


def plan_of(seed: int) -> Plan:
    """The plan of a seed, as far as the pool can suffer it."""
    processes = wishes.POOL == "prefork"
    out = {*wishes.WITHOUT, *([] if processes else ["kill_child"])}
    return make_plan(seed, wishes.ITEMS, kinds=tuple(kind for kind in EVENTS if kind not in out), deadly=processes)


def wreak(havoc: Havoc, plan: Plan, program: ChildProcess) -> list[Call]:
    """Let everything in the plan happen; what the callers got."""
    begun = program.folder / callers.BEGUN
    havoc.until(lambda: begun.exists() and bool(begun.read_text()), "the callers begin", 20.0)
    began = float(begun.read_text())
    for event in plan.events:
        havoc.perform(event, began)
    patience = len(plan.items) / RATE + callers.GIVE_UP_S + 10.0
    havoc.until(lambda: not program.running, "the callers have done", patience)
    assert 0 == program.wait(), program.log()
    return [Call(**call) for call in json.loads((program.folder / callers.ANSWERS).read_text())]


@contextmanager
def calling(live: LiveSite, plan: Plan, folder: Path) -> Iterator[ChildProcess]:
    """The callers' process, while the `with` block runs."""
    (folder / callers.ITEMS).write_text(json.dumps([asdict(item) for item in plan.items]))
    env = {**os.environ, **live.site.environ(), "PYTHONPATH": str(ROOT)}
    program = ChildProcess([sys.executable, "-m", callers.__name__], folder=folder, env=env)
    try:
        yield program
    finally:
        program.kill()
