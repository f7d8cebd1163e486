"""Revoking and expiring single items: while they wait, and while their batch runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from celery.exceptions import TaskRevokedError

from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: The solo pool answers no remote control while its model runs.
POOLS = ("prefork", "threads")
PLACES = (("prefork", "redis"), ("threads", "rabbitmq"))


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_waiting_item_is_revoked_alone(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """Of three waiting items one is revoked: the model sees the two others, and it stays REVOKED (case 55)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        worker.control("revoke", items[1].id)

    assert [2, 6] == [items[i].get(timeout=30) for i in (0, 2)]
    assert 0 == running.get(timeout=30)
    assert [[1, 3]] == later_runs(worker)
    assert "REVOKED" == items[1].state
    with pytest.raises(TaskRevokedError):
        items[1].get(timeout=30)


@pytest.mark.parametrize("pool", POOLS)
def test_a_revoked_place_is_taken_by_the_next(shared_worker: WorkerFixture, pool: str) -> None:
    """The place of a revoked item goes to the next waiting one, so the batch is full all the same (case 55)."""
    worker = shared_worker("control", pool=pool, settings={"batching_bulk": False})  # no full batch is sent ahead
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3, 4, 5)]
        wait_for_waiting(worker, 5)
        worker.control("revoke", items[0].id)

    assert [4, 6, 8, 10] == [item.get(timeout=30) for item in items[1:]]
    assert [[2, 3, 4, 5]] == later_runs(worker)


@pytest.mark.parametrize("pool", POOLS)
def test_a_running_item_is_terminated_alone(shared_worker: WorkerFixture, pool: str) -> None:
    """Terminating one item of a running batch revokes it; its siblings succeed, and the reply names it (case 56)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        answer = worker.control("revoke", items[1].id, terminate=True)
        wait_until(lambda: items[1].state == "REVOKED", "the item is revoked", saw=lambda: items[1].state)

    assert {"ok": f"terminate: {items[1].id}"} == answer
    assert [2, 6] == [items[i].get(timeout=40) for i in (0, 2)]
    with pytest.raises(TaskRevokedError):
        items[1].get(timeout=30)
    assert 8 == double.delay(4).get(timeout=30)
    assert "REVOKED" == items[1].state


def test_a_terminated_item_runs_never_again(shared_worker: WorkerFixture) -> None:
    """When prefork kills the process for one item, the others run again without it, in one batch (case 56)."""
    worker = shared_worker("control")
    double = worker.task("double")

    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        worker.journal.let_through()
        worker.journal.wait_for("run", 2)
        worker.control("revoke", items[1].id, terminate=True)
        worker.journal.wait_for("run", 3)

    assert [2, 6] == [items[i].get(timeout=40) for i in (0, 2)]
    assert [[1, 2, 3], [1, 3]] == later_runs(worker)


@pytest.mark.parametrize(("pool", "broker"), [*PLACES, ("solo", "redis")])
def test_an_item_that_expires_in_the_buffer_does_not_run(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """An item whose expiry passes while it waits is REVOKED and acked; its siblings run (case 57)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double = worker.task("double")

    with busy(worker, double):
        stale = double.apply_async((1,), expires=0.5)
        fresh = double.apply_async((2,), expires=600)
        sent = time.monotonic()
        wait_until(lambda: time.monotonic() > sent + 1, "the expiry has passed")

    assert 4 == fresh.get(timeout=30)
    assert [[2]] == later_runs(worker)
    with pytest.raises(TaskRevokedError):
        stale.get(timeout=30)


def test_an_item_revoked_by_its_stamp_does_not_run(shared_worker: WorkerFixture) -> None:
    """Revoking by a stamp takes the stamped items out of the buffer and no other (case 55)."""
    worker = shared_worker("control", pool="threads")
    double = worker.task("double")

    with busy(worker, double):
        stamped = double.s(1)
        stamped.stamp(customer="c1")
        dropped, kept = stamped.apply_async(), double.delay(2)
        wait_for_waiting(worker, 2)
        worker.control("revoke_by_stamped_headers", {"customer": "c1"})

    assert 4 == kept.get(timeout=30)
    with pytest.raises(TaskRevokedError):
        dropped.get(timeout=30)
    assert [[2]] == later_runs(worker)
