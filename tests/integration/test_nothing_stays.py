"""What is done goes at once: neither requests nor batches wait for Python's garbage collector."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.busy import busy, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Seconds for what a test does not measure.
LONG_S = 20.0

#: The last batch may be kept until the next one ends: a result not yet read, or acks not known to be sent.
KEPT = 3


#: Batches over which the objects of a process are counted: less than one of each may stay.
COUNTED = 100


@pytest.mark.parametrize("name", ["objects", "objects_traced"])
@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_no_batch_leaves_anything_behind(start_worker: WorkerFixture, pool: str, name: str) -> None:
    """Where the model runs, a hundred batches later there are no more objects."""
    worker = start_worker("uncollected", pool=pool)
    objects = worker.task(name)
    for _ in range(20):
        before = objects.delay(0).get(timeout=LONG_S)
    for _ in range(COUNTED):
        after = objects.delay(0).get(timeout=LONG_S)
    assert after - before < COUNTED


@pytest.mark.parametrize(
    ("pool", "broker"), [("prefork", "redis"), ("prefork", "rabbitmq"), ("threads", "redis"), ("solo", "redis")]
)
def test_ended_requests_and_batches_go(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """After 40 items in batches, the main process has no more of them than a few."""
    worker = start_worker("uncollected", pool=pool, broker=broker)
    double = worker.task("double")
    for _ in range(4):
        with busy(worker, double):
            items = [double.delay(x) for x in range(10)]
            if pool != "solo":  # there they wait at the broker
                wait_for_waiting(worker, 10)
        assert [2 * x for x in range(10)] == [item.get(timeout=LONG_S) for item in items]
    assert 0 == double.delay(0).get(timeout=LONG_S)

    wait_until(lambda: worker.inspect("living") <= KEPT, "the others have gone", saw=lambda: worker.inspect("living"))
