"""Which of the waiting items leave first: by priority as the broker counts it, unless one has waited too long."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from celery_batching.core.items import AGE_BOUND_S
from tests.support.bounds import NEVER_OLD
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Where priorities are counted, and the number of a call that may wait and of one that is urgent:
#: kombu on Redis takes lower numbers first, RabbitMQ higher ones.
BROKERS = [("redis", 6, 0), ("rabbitmq", 1, 8)]

#: What RabbitMQ wants to know before it looks at priorities at all (`x-max-priority`).
SETTINGS = {"task_queue_max_priority": 9}


@pytest.mark.parametrize(("broker", "later", "urgent"), BROKERS)
def test_urgent_items_overtake_waiting_ones(shared_worker: WorkerFixture, broker: str, later: int, urgent: int) -> None:
    """Urgent items that come last leave with the next batch, in the broker's own sense of urgent (case 60)."""
    worker = shared_worker("forming", pool="threads", broker=broker, settings=SETTINGS, env=NEVER_OLD)
    greedy = worker.task("greedy")

    with busy(worker, greedy):
        results = [greedy.apply_async((x,), priority=later) for x in range(10, 16)]
        wait_for_waiting(worker, 6)
        results += [greedy.apply_async((x,), priority=urgent) for x in range(20, 23)]
        wait_for_waiting(worker, 9)

    assert 9 == len([one.get(timeout=30) for one in results])
    assert [[20, 21, 22, 10], [11, 12, 13, 14], [15]] == later_runs(worker)


@pytest.mark.parametrize(("broker", "later", "urgent"), BROKERS)
def test_an_old_item_goes_before_urgent_ones(
    shared_worker: WorkerFixture, broker: str, later: int, urgent: int
) -> None:
    """An item that has waited for the age bound leaves first, so that a stream of urgent ones starves nobody."""
    worker = shared_worker("forming", pool="threads", broker=broker, settings=SETTINGS)
    greedy = worker.task("greedy")

    with busy(worker, greedy):
        results = [greedy.apply_async((1,), priority=later)]
        wait_for_waiting(worker, 1)
        # The urgent ones enter the buffer when the bound has passed.
        results += [greedy.apply_async((x,), priority=urgent, countdown=AGE_BOUND_S + 0.1) for x in range(20, 26)]
        wait_for_waiting(worker, 7)

    assert 7 == len([one.get(timeout=30) for one in results])
    assert [1, 20, 21, 22] == later_runs(worker)[0]


def test_equal_items_leave_in_order_of_arrival(shared_worker: WorkerFixture) -> None:
    """Items of one priority leave in the order in which they came."""
    worker = shared_worker("forming")
    greedy = worker.task("greedy")

    with busy(worker, greedy):
        results = [greedy.delay(x) for x in range(10)]
        wait_for_waiting(worker, 10)

    assert [2 * x for x in range(10)] == [one.get(timeout=30) for one in results]
    assert [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == later_runs(worker)


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_places_of_dead_items_are_taken_by_the_next(shared_worker: WorkerFixture, broker: str) -> None:
    """Items that were revoked or expired while they waited are left out, and the batch is full all the same."""
    worker = shared_worker("forming", pool="threads", broker=broker, settings=SETTINGS)
    greedy = worker.task("greedy")

    with busy(worker, greedy):
        revoked, expired = greedy.delay(10), greedy.apply_async((11,), expires=1)
        end = time.time() + 1
        results = [greedy.delay(x) for x in range(1, 6)]
        wait_for_waiting(worker, 7)
        worker.control("revoke", revoked.id)
        wait_until(lambda: time.time() > end, "the second item has expired")

    assert [2, 4, 6, 8, 10] == [one.get(timeout=30) for one in results]
    assert [[1, 2, 3, 4], [5]] == later_runs(worker)
    assert ["REVOKED", "REVOKED"] == [revoked.state, expired.state]
