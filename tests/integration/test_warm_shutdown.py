"""SIGTERM with a full buffer: what runs is settled, what waits goes back to the queue, nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.busy import busy, wait_for_waiting
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [("prefork", "redis"), ("threads", "rabbitmq")]

#: Seconds for a worker to end after its batch.
END_S = 20.0


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_warm_shutdown_returns_the_buffer(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """The running batch ends and is acked, no other starts, and the next worker answers the items that waited."""
    worker = start_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        wait_for_waiting(worker, 6)
        worker.signal(signal.SIGTERM)
        worker.wait_for(lambda: "Warm shutdown" in worker.log(), "the shutdown begins")
    assert 0 == worker.wait(END_S)

    assert 0 == running.get(timeout=10)
    assert [[0]] == [entry["items"] for entry in worker.journal.entries("run")]
    assert [(1, 1)] == [(line.size, line.succeeded) for line in worker.batches()]
    start_worker("control", site=worker.live, pool="threads", broker=broker)
    assert [2 * x for x in range(1, 7)] == [item.get(timeout=20) for item in waiting]
    assert 7 == sum(len(entry["items"]) for entry in worker.journal.entries("run"))


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_solo_worker_ends_after_its_batch(start_worker: WorkerFixture, broker: str) -> None:
    """Where the loop stands still during a batch, the worker ends with the batch, and loses nothing."""
    worker = start_worker("control", pool="solo", broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        waiting = [double.delay(x) for x in range(1, 7)]
        worker.signal(signal.SIGTERM)
        worker.wait_for(lambda: "Warm shutdown" in worker.log(), "the shutdown begins")
    assert 0 == worker.wait(END_S)

    assert 0 == running.get(timeout=10)
    assert [[0]] == [entry["items"] for entry in worker.journal.entries("run")]
    start_worker("control", site=worker.live, pool="threads")
    assert [2 * x for x in range(1, 7)] == [item.get(timeout=20) for item in waiting]
