"""Retries of single items: those that ask for one, with their own count, and nobody else (case 61)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.busy import wait_for_waiting
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [("prefork", "redis"), ("threads", "rabbitmq"), ("solo", "redis")]


def counts_by_id(worker: WorkerProcess, task: str) -> dict[str, list[int]]:
    """The retry counts of each id, in the order of its runs."""
    counts: dict[str, list[int]] = {}
    for entry in worker.journal.entries("run"):
        if entry["task"] == f"control.{task}":
            for one, count in zip(entry["ids"], entry["retries"], strict=True):
                counts.setdefault(one, []).append(count)
    return counts


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_only_the_item_that_asks_is_retried(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """One item asks twice and then works, one asks too often and fails with its error, one works at once (case 61)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    flaky = worker.task("flaky")

    with worker.journal.closed_gate():
        works, twice, never = (flaky.delay(x, failures) for x, failures in ((1, 0), (2, 2), (3, 99)))

    assert [2, 4] == [works.get(timeout=40), twice.get(timeout=40)]
    with pytest.raises(ValueError, match="3 failed"):
        never.get(timeout=40)
    assert {works.id: [0], twice.id: [0, 1, 2], never.id: [0, 1, 2, 3]} == counts_by_id(worker, "flaky")
    assert 5 == sum(line.retried for line in worker.batches())


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_an_error_named_for_automatic_retries_is_retried(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """With `autoretry_for` an entry of that class retries its item alone, up to the task's limit (case 61)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    transient = worker.task("transient")

    with worker.journal.closed_gate():
        works, once, never = (transient.delay(x, failures) for x, failures in ((1, 0), (2, 1), (3, 99)))

    assert [2, 4] == [works.get(timeout=40), once.get(timeout=40)]
    with pytest.raises(ConnectionError, match="3 failed"):
        never.get(timeout=40)
    assert {works.id: [0], once.id: [0, 1], never.id: [0, 1, 2]} == counts_by_id(worker, "transient")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_retried_item_joins_a_later_batch(shared_worker: WorkerFixture, pool: str) -> None:
    """The retry is a new message with the same id: it may share a batch with items sent since (case 61)."""
    worker = shared_worker("control", pool=pool)
    flaky = worker.task("flaky")

    with worker.journal.closed_gate():
        again = flaky.delay(1, 1)
        worker.journal.wait_for("run")
        full = [flaky.delay(x, 0) for x in (3, 4, 5, 6)]
        wait_for_waiting(worker, 4)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)  # a full batch, so the retry has to wait
        wait_for_waiting(worker, 1)
        later = flaky.delay(2, 0)
        wait_for_waiting(worker, 2)

    assert [2, 4] == [again.get(timeout=30), later.get(timeout=30)]
    assert [6, 8, 10, 12] == [item.get(timeout=30) for item in full]
    assert [[1], [3, 4, 5, 6], [1, 2]] == [entry["items"] for entry in worker.journal.entries("run")]
    assert [0, 1] == counts_by_id(worker, "flaky")[again.id]
