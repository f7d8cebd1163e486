"""A steady stream of calls to a slow model: batches grow to what comes in during one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.batch_lines import sizes_of
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.alone

WorkerFixture = Callable[..., WorkerProcess]

#: Seconds that the model takes, calls in a second, and seconds that they come.
MODEL_S, RATE, LENGTH_S = 1.0, 20, 4


def test_batches_grow_to_what_comes_in_during_a_run(shared_worker: WorkerFixture) -> None:
    """With a model of 1 s and 20 calls a second, batches hold 16 to 20 of them, not two (case 7)."""
    worker = shared_worker("timed", settings={"model_s": MODEL_S, "batching_max_wait": 0.1})
    first = worker.task("first")

    results = [first.delay(x) for x in paced(RATE * LENGTH_S, RATE)]

    assert [2 * x for x in range(RATE * LENGTH_S)] == [one.get(timeout=40) for one in results]
    sizes = sizes_of(worker, RATE * LENGTH_S)
    assert len(sizes) <= LENGTH_S + 2
    # The first batch has what came during its wait, the last what was left. One of the others may have less when
    # the machine stood still meanwhile.
    assert statistics.median(sizes[1:-1]) >= 16


def paced(count: int, rate: float) -> Iterator[int]:
    """Count at a steady rate."""
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number / rate - time.monotonic()))  # noqa: TID251 - the pace is what is tested
        yield number
