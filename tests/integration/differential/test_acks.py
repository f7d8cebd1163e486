"""The moment of the ack, seen at the broker while the model runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.scenario import MODULE
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
@pytest.mark.parametrize("kind", ["plain", "batched"])
def test_a_late_ack_comes_after_the_run(shared_worker: WorkerFixture, kind: str, broker: str) -> None:
    """With late acks the broker keeps the message for as long as the model runs."""
    worker = shared_worker(MODULE, extra=["-E"], broker=broker)

    with worker.journal.closed_gate():
        result = worker.task(f"hold.{kind}.late").delay()
        worker.journal.wait_for("held")
        worker.wait_for(worker.ping, "the worker answers")  # it has handled all that came before
        assert [] != worker.live.broker.leftovers()

    assert result.get(timeout=30) is None
    wait_until(lambda: not worker.live.broker.leftovers(), "the message is acked")


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
@pytest.mark.parametrize("kind", ["plain", "batched"])
def test_an_early_ack_comes_before_the_run(shared_worker: WorkerFixture, kind: str, broker: str) -> None:
    """With early acks the message is gone while the model still runs."""
    worker = shared_worker(MODULE, extra=["-E"], broker=broker)

    with worker.journal.closed_gate():
        result = worker.task(f"hold.{kind}.early").delay()
        worker.journal.wait_for("held")
        wait_until(lambda: not worker.live.broker.leftovers(), "the message is acked")
        assert not result.ready()

    assert result.get(timeout=30) is None
