"""The broker connection is lost while items wait or run: each of them resolves, and none is in a batch twice."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.busy import busy, jobs_written, later_runs, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [("prefork", "redis"), ("threads", "redis"), ("prefork", "rabbitmq"), ("threads", "rabbitmq")]

#: Seconds for a worker to notice the loss, connect again and be given the messages once more.
BACK_S = 40.0


def lose_connection(worker: WorkerProcess) -> None:
    """Cut the worker's connections and wait until it is back."""
    losses = worker.log().count("Connection to broker lost")
    connects = worker.log().count("Connected to")
    worker.drop_broker_connections()
    worker.wait_for(lambda: worker.log().count("Connection to broker lost") > losses, "the loss is noticed")
    worker.wait_for(lambda: worker.log().count("Connected to") > connects, "the worker connects again")


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_waiting_items_are_in_one_batch_after_a_reconnect(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """Items that wait when the connection is lost run once, in a batch that holds no id twice (case 39)."""
    worker = start_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        lose_connection(worker)

    assert [2, 4, 6] == [item.get(timeout=BACK_S) for item in items]
    assert 0 == running.get(timeout=BACK_S)
    assert 8 == double.delay(4).get(timeout=BACK_S)
    for entry in worker.journal.entries("run"):
        assert {1} == set(Counter(entry["ids"]).values())
    assert {1, 2, 3, 4} <= {x for run in later_runs(worker) for x in run}


@pytest.mark.parametrize(("pool", "broker"), [("prefork", "redis"), ("threads", "rabbitmq")])
def test_timers_are_armed_after_each_reconnect(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A lone item that waits for company leaves after `max_wait`, however often the connection was lost (case 38)."""
    worker = start_worker("control", pool=pool, broker=broker)
    patient = worker.task("patient")

    for x in range(3):
        item = patient.delay(x)
        lose_connection(worker)
        later = patient.delay(10 + x)
        assert [2 * x, 20 + 2 * x] == [result.get(timeout=BACK_S) for result in (item, later)]
        # Else the next loss takes their acks along, and they come again.
        wait_until(lambda: not worker.live.leftovers(), "both are acked", saw=worker.live.leftovers)

    assert {"wait"} == {line.reason for line in worker.batches()}


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_solo_worker_takes_work_after_a_reconnect(start_worker: WorkerFixture, broker: str) -> None:
    """Also where the loop stands still during a batch, work goes on after a lost connection (case 38)."""
    worker = start_worker("control", pool="solo", broker=broker)
    double = worker.task("double")
    assert 2 == double.delay(1).get(timeout=BACK_S)

    lose_connection(worker)

    assert [4, 6] == [item.get(timeout=BACK_S) for item in (double.delay(2), double.delay(3))]


def test_batches_fill_again_after_a_reconnect(start_worker: WorkerFixture) -> None:
    """The prefetch is right again after a reconnect: the next batch fills while one runs (case 39)."""
    worker = start_worker("control")
    double = worker.task("double")
    lose_connection(worker)
    assert 2 == double.delay(1).get(timeout=BACK_S)
    runs = len(worker.journal.entries("run"))

    with worker.journal.closed_gate():
        items = [double.delay(0)]
        worker.journal.wait_for("run", runs + 1)
        items += [double.delay(x) for x in (1, 2, 3, 4)]
        wait_for_waiting(worker, 4)

    assert [0, 2, 4, 6, 8] == [item.get(timeout=BACK_S) for item in items]
    wait_until(lambda: 4 in [line.size for line in worker.batches()], "a full batch", saw=worker.batches)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_batch_the_pool_has_not_accepted_is_forgotten(start_worker: WorkerFixture, broker: str) -> None:
    """Celery drops jobs that no child has accepted when the connection is lost; their slot is free again (case 39)."""
    worker = start_worker("control", broker=broker)
    double = worker.task("double")
    (child,) = worker.children()
    assert 0 == double.delay(0).get(timeout=BACK_S)  # else the process may stop before its setup is known
    wait_until(lambda: not worker.live.leftovers(), "it has told the end of that batch, too")

    written = jobs_written(worker)
    os.kill(child, signal.SIGSTOP)
    try:
        first = double.delay(1)
        wait_until(lambda: jobs_written(worker) > written, "the batch is on its way to the child")
        lose_connection(worker)
    finally:
        os.kill(child, signal.SIGCONT)

    assert [2, 4] == [item.get(timeout=BACK_S) for item in (first, double.delay(2))]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_process_that_dies_with_the_connection_costs_no_item(start_worker: WorkerFixture, broker: str) -> None:
    """The worker learns at the same moment that its connection and its pool process are gone; it goes on."""
    worker = start_worker("control", broker=broker)
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        (running,) = worker.journal.entries("run")
        os.kill(worker.pid, signal.SIGSTOP)
        worker.drop_broker_connections()
        os.kill(running.pid, signal.SIGKILL)
        os.kill(worker.pid, signal.SIGCONT)

    assert [2, 4, 6] == [item.get(timeout=BACK_S) for item in items]
    assert 8 == double.delay(4).get(timeout=BACK_S)
