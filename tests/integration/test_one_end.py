"""Limits that strike late: each item has one end, the one that a plain task has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.integration.test_outage import BACK_S, runs_of
from tests.support.busy import busy, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]


def test_a_soft_limit_while_results_are_stored_changes_none(start_worker: WorkerFixture) -> None:
    """It strikes in the handler of the first item, after the run: all items succeed, each of them once."""
    worker = start_worker("outage")
    soft = worker.task("soft")

    worker.journal.close_gate("stored")
    with busy(worker, worker.task("double")):
        items = [soft.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
    worker.journal.wait_for("stored")
    worker.wait_for(lambda: "Soft time limit" in worker.log(), "the limit has struck")
    worker.journal.open_gate("stored")

    assert [2, 4, 6] == [item.get(timeout=BACK_S) for item in items]
    worker.journal.wait_for("stored", 3)
    assert {item.id: 1 for item in items} == Counter(entry["id"] for entry in worker.journal.entries("stored"))
    assert ["SUCCESS"] * 3 == [item.state for item in items]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == runs_of(worker)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_hard_limit_without_ack_ends_as_for_a_plain_task(start_worker: WorkerFixture, broker: str) -> None:
    """With `acks_on_failure_or_timeout=False` the message is rejected or put back as Celery does (case 52)."""
    worker = start_worker("outage", broker=broker, concurrency=2)

    with worker.journal.closed_gate():
        ends = {x: worker.task(name).delay(x) for x, name in enumerate(("limited", "limited_alone"))}
        worker.journal.wait_for("run", 2)
        wait_until(
            lambda: all(item.state == "FAILURE" or runs_of(worker)[x] > 1 for x, item in ends.items()),
            "both have had their time",
            BACK_S,
        )
    wait_until(lambda: not worker.live.leftovers(), "both are settled", BACK_S, saw=worker.live.leftovers)

    # A result of its own: the first one has seen, and keeps, the failure before the second run.
    batched, plain = ((worker.app.AsyncResult(ends[x].id).state, runs_of(worker)[x]) for x in (0, 1))
    assert plain == batched
    assert plain in {("FAILURE", 1), ("SUCCESS", 2)}
