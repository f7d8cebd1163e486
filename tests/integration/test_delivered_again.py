"""A message that brings an item once more: the item runs once, has one result, and no message is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.integration.test_reconnect import BACK_S, PLACES, lose_connection
from tests.support.busy import busy, wait_for_waiting
from tests.support.servers import Servers
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

AGAIN = "was delivered again; it runs once"


def runs_of(worker: WorkerProcess) -> Counter[int]:
    """How often each item has run."""
    return Counter(x for entry in worker.journal.entries("run") for x in entry["items"])


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_an_id_sent_twice_runs_once(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """Two calls with one id in a window, and a third while it runs, have one run and one result (case 37)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double):
        twins = [double.apply_async((5,), task_id="the-same") for _ in range(2)]
        other = double.delay(6)
        wait_for_waiting(worker, 2)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        twins.append(double.apply_async((5,), task_id="the-same"))
        worker.wait_for(lambda: worker.log().count(AGAIN) == 2, "both are known")

    assert [10] * 3 == [twin.get(timeout=BACK_S) for twin in twins]
    assert 12 == other.get(timeout=BACK_S)
    assert {0: 1, 5: 1, 6: 1} == runs_of(worker)
    # Until then the worker takes another message of that id for the same call.
    wait_until(lambda: not worker.live.broker.leftovers(), "the worker is done with it")
    assert 10 == double.apply_async((5,), task_id="the-same").get(timeout=BACK_S)
    wait_until(lambda: runs_of(worker)[5] == 2, "an id that was answered may be called again")


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_running_item_is_known_after_a_reconnect(start_worker: WorkerFixture, pool: str, broker: str) -> None:
    """The connection is lost while a batch runs; its items come again before it ends, and run once."""
    worker = start_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        lose_connection(worker)
        worker.wait_for(lambda: worker.log().count(AGAIN) >= 3, "the running items are known", BACK_S)

    assert [2, 4, 6] == [item.get(timeout=BACK_S) for item in items]
    assert 8 == double.delay(4).get(timeout=BACK_S)
    assert {0: 1, 1: 1, 2: 1, 3: 1, 4: 1} == runs_of(worker)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_an_item_that_ended_without_a_connection_is_known(
    start_worker: WorkerFixture, servers: Servers, pool: str
) -> None:
    """The batch ends while the worker is cut off; when its items come again they are acknowledged, not run."""
    # Celery's heartbeat event would connect again, and again, and so keep the worker from noticing the loss.
    worker = start_worker("control", pool=pool, broker="rabbitmq", extra=["--without-heartbeat"])
    double = worker.task("double")

    with busy(worker, double) as running:
        item = double.delay(1)
        wait_for_waiting(worker, 1)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        with servers.rabbitmq.refusing():
            worker.drop_broker_connections()
            worker.wait_for(lambda: "Connection to broker lost" in worker.log(), "the loss is noticed")
            worker.journal.let_through()
            assert 2 == item.get(timeout=BACK_S)
        worker.wait_for(lambda: worker.log().count(AGAIN) >= 1, "the item is known", BACK_S)

    assert 0 == running.get(timeout=BACK_S)
    assert 8 == double.delay(4).get(timeout=BACK_S)
    assert 1 == runs_of(worker)[1]


def test_a_retry_is_no_second_delivery(shared_worker: WorkerFixture) -> None:
    """A retry has the id of the item whose batch may still be ending; it runs (case 61)."""
    worker = shared_worker("control")
    flaky = worker.task("flaky")

    items = [flaky.delay(x, 3) for x in range(8)]

    assert [2 * x for x in range(8)] == [item.get(timeout=BACK_S) for item in items]
    assert AGAIN not in worker.log()
