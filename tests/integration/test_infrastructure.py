"""The ground that the integration tests stand on, shown with plain Celery tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

POOLS = ("prefork", "threads", "solo")
BROKERS = ("redis", "rabbitmq")


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("broker", BROKERS)
def test_a_call_is_answered(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A task that is called gives its answer, on every pool and broker."""
    worker = shared_worker("plain", pool=pool, broker=broker)

    assert 5 == worker.task("add").delay(2, 3).get(timeout=30)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("broker", BROKERS)
def test_a_gate_holds_the_model(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A test keeps the model busy for exactly as long as it wants."""
    worker = shared_worker("plain", pool=pool, broker=broker)

    with worker.journal.closed_gate():
        held = worker.task("double_when_open").delay(4)
        worker.journal.wait_for("run")
        assert "PENDING" == held.state

    assert 8 == held.get(timeout=30)
    assert [[4]] == [entry["items"] for entry in worker.journal.entries("run")]


def test_a_ticket_lets_one_through(shared_worker: WorkerFixture) -> None:
    """With one ticket one call passes the gate, and the next one waits."""
    worker = shared_worker("plain", pool="threads")
    double = worker.task("double_when_open")

    with worker.journal.closed_gate():
        first, second = double.delay(1), double.delay(2)
        worker.journal.let_through()
        assert 2 == first.get(timeout=30)
        worker.journal.wait_for("run", 2)
        assert "PENDING" == second.state

    assert 4 == second.get(timeout=30)


@pytest.mark.parametrize("backend", ["rpc", "sqlite"])
def test_other_backends_answer(shared_worker: WorkerFixture, backend: str) -> None:
    """Results also come back without Redis."""
    worker = shared_worker("plain", pool="threads", broker="rabbitmq", backend=backend)

    assert 5 == worker.task("add").delay(2, 3).get(timeout=30)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_waiting_message_is_seen_as_left(open_site: SiteFixture, broker: str) -> None:
    """The checker names a message that nobody has taken."""
    live = open_site(broker=broker)
    live.app("plain").tasks["plain.add"].delay(2, 3)

    left = wait_until(live.leftovers, "the message is seen")

    assert 1 == len(left)
    assert live.site.queue in left[0]
    live.purge()
    assert [] == live.leftovers()


@pytest.mark.parametrize("broker", BROKERS)
def test_an_unacked_message_is_seen_as_left(shared_worker: WorkerFixture, broker: str) -> None:
    """The checker sees a message that a worker holds, until it is acked."""
    worker = shared_worker("plain", pool="threads", broker=broker)

    with worker.journal.closed_gate():
        held = worker.task("double_when_open").delay(4)
        worker.journal.wait_for("run")
        assert "unacked" in " ".join(worker.live.leftovers())

    assert 8 == held.get(timeout=30)


def test_a_result_without_expiry_is_seen_as_left(shared_worker: WorkerFixture) -> None:
    """The checker names a result that would stay for ever."""
    worker = shared_worker("plain", pool="solo", settings={"result_expires": 0})

    result = worker.task("add").delay(2, 3)
    assert 5 == result.get(timeout=30)

    # A solo worker acks the message after it has stored the result.
    kept = [f"key celery-task-meta-{result.id}: string"]
    wait_until(lambda: kept == worker.live.leftovers(), "only the result is left", saw=worker.live.leftovers)
    worker.live.purge()


@pytest.mark.parametrize("pool", POOLS)
def test_sigterm_ends_a_worker(start_worker: WorkerFixture, pool: str) -> None:
    """A worker ends by itself after SIGTERM, with status 0 and without its children."""
    worker = start_worker("plain", pool=pool)

    assert 0 == worker.terminate(60)

    assert not worker.running
    assert "Warm shutdown" in worker.log()


def test_a_killed_worker_gives_its_message_to_the_next(start_worker: WorkerFixture) -> None:
    """What a killed worker held goes to another one at the same site."""
    first = start_worker("plain", broker="rabbitmq")
    with first.journal.closed_gate():
        held = first.task("double_when_open").delay(4)
        first.journal.wait_for("run")
        assert -signal.SIGKILL == first.kill()

    start_worker("plain", site=first.live, pool="threads")

    assert 8 == held.get(timeout=30)


@pytest.mark.parametrize("broker", BROKERS)
def test_a_worker_outlives_its_connection(start_worker: WorkerFixture, broker: str) -> None:
    """After its connection was cut a worker comes back and takes work."""
    worker = start_worker("plain", pool="threads", broker=broker)

    worker.drop_broker_connections()
    worker.wait_for(lambda: "Connection to broker lost" in worker.log(), "the loss is noticed")

    assert 5 == worker.task("add").delay(2, 3).get(timeout=40)


def test_a_worker_that_cannot_start_fails_at_once(start_worker: WorkerFixture) -> None:
    """A worker that ends while it starts fails the test with its own words."""
    with pytest.raises(pytest.fail.Exception, match="no-such-option"):
        start_worker("plain", extra=["--no-such-option"])
