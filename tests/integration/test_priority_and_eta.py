"""Which waiting item goes first, and that parked ones take nobody's place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.bounds import NEVER_OLD
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: More than the worker of these tests fetches at a time.
MANY = 60


def end_and_purge(worker: WorkerProcess) -> None:
    """End a worker that has parked items for an hour, and drop them as soon as they are back on the queue."""
    worker.terminate()

    def purged() -> bool:
        worker.live.purge()
        return not worker.live.leftovers()

    wait_until(purged, "the parked items are dropped", saw=worker.live.leftovers)


@pytest.mark.parametrize(
    ("broker", "settings", "high", "low"),
    [("redis", {}, 0, 9), ("rabbitmq", {"task_queue_max_priority": 10}, 9, 0)],
)
def test_high_priority_leaves_first(
    shared_worker: WorkerFixture, broker: str, settings: dict[str, int], high: int, low: int
) -> None:
    """Two items of high priority overtake six low ones that wait; equal ones go by arrival (case 60)."""
    worker = shared_worker("control", pool="threads", broker=broker, settings=settings, env=NEVER_OLD)
    double = worker.task("double")

    with busy(worker, double):
        items = [double.apply_async((x,), priority=low) for x in (1, 2, 3, 4, 5, 6)]
        wait_for_waiting(worker, 6)
        items += [double.apply_async((x,), priority=high) for x in (7, 8)]
        wait_for_waiting(worker, 8)

    assert [2 * x for x in range(1, 9)] == [item.get(timeout=30) for item in items]
    assert [[7, 8, 1, 2], [3, 4, 5, 6]] == later_runs(worker)


@pytest.mark.parametrize(("pool", "broker"), [("prefork", "redis"), ("threads", "rabbitmq")])
def test_parked_items_block_nobody(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """More parked items than the worker fetches at a time leave room for calls that are due now (case 59)."""
    worker = start_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    for x in range(MANY):
        double.apply_async((x,), countdown=3600)
    wait_until(lambda: len(worker.inspect("scheduled")) == MANY, "all of them are parked")

    assert 2 == worker.task("double_alone").delay(1).get(timeout=30)
    assert 4 == double.delay(2).get(timeout=30)
    assert [[2]] == [entry["items"] for entry in worker.journal.entries("run")]
    end_and_purge(worker)


def test_the_number_of_parked_items_is_bounded_by_the_setting(start_worker: WorkerFixture) -> None:
    """`worker_eta_task_limit` bounds what a worker parks, also where the batch size asks for more (case 59)."""
    worker = start_worker("control", pool="threads", settings={"worker_eta_task_limit": 12})
    double = worker.task("double")

    for x in range(MANY):
        double.apply_async((x,), countdown=3600)
    wait_until(lambda: len(worker.inspect("scheduled")) >= 12, "some of them are parked")
    held = [len(worker.inspect("scheduled")) for _ in range(5)]

    assert [12] * 5 == held
    end_and_purge(worker)


def test_parked_items_run_in_batches_when_their_time_comes(shared_worker: WorkerFixture) -> None:
    """Items that mature together share batches, none of them larger than allowed (case 59)."""
    worker = shared_worker("control", pool="threads")
    double = worker.task("double")

    items = [double.apply_async((x,), countdown=1) for x in range(10)]

    assert [2 * x for x in range(10)] == [item.get(timeout=40) for item in items]
    assert max(len(entry["items"]) for entry in worker.journal.entries("run")) <= 4
