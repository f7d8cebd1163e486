"""The largest size is a cap: no batch is ever larger, whatever comes at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from tests.support.batch_lines import batches_of
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]


def test_items_that_mature_together_keep_the_cap(shared_worker: WorkerFixture) -> None:
    """Thirty items whose countdown ends at one moment leave in batches of at most the largest size (case 4)."""
    worker = shared_worker("forming")
    greedy = worker.task("greedy")

    with busy(worker, greedy):
        moment = datetime.now(timezone.utc) + timedelta(seconds=1)
        results = [greedy.apply_async((x,), eta=moment) for x in range(30)]
        wait_for_waiting(worker, 30)

    assert [2 * x for x in range(30)] == [one.get(timeout=30) for one in results]
    assert [4] * 7 + [2] == [len(items) for items in later_runs(worker)]


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_size_of_one_is_a_plain_task(shared_worker: WorkerFixture, pool: str) -> None:
    """With a largest size of one each call runs alone, like a plain task (case 12)."""
    worker = shared_worker("forming", pool=pool)

    results = [worker.task("lone").delay(x) for x in range(10)]

    assert [2 * x for x in range(10)] == [one.get(timeout=30) for one in results]
    assert [(1, "full")] * 10 == [(batch.size, batch.reason) for batch in batches_of(worker, 10)]


def test_a_size_of_zero_keeps_the_worker_from_starting(start_worker: WorkerFixture) -> None:
    """A bad option in the environment ends the start of the worker, with its name and value (case 12)."""
    with pytest.raises(pytest.fail.Exception) as caught:
        start_worker("single", env={"CELERY_BATCHING_MAX_BATCH_SIZE": "0"})

    assert "CELERY_BATCHING_MAX_BATCH_SIZE must be a whole number of items, 1 or more; got 0" in str(caught.value)
