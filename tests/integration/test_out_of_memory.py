"""A batch that does not fit into memory runs in parts that do, and later batches are no larger."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

WAIT_S = 20.0


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
@pytest.mark.parametrize("name", ["tight", "tight_elsewhere", "tight_gpu"])
def test_a_batch_that_does_not_fit_is_halved(start_worker: WorkerFixture, name: str, pool: str) -> None:
    """Of eight items four fit: all succeed, and the next eight run four at a time (cases 50 and 51)."""
    worker = start_worker("faulty", pool=pool)
    tight = worker.task(name)
    assert 0 == tight.delay(0).get(timeout=WAIT_S)

    for _ in range(2):
        with busy(worker, tight):
            items = [tight.delay(x) for x in range(8)]
            if pool != "solo":  # which reads nothing meanwhile, and then all of it at once
                wait_for_waiting(worker, 8)
        assert [2 * x for x in range(8)] == [item.get(timeout=WAIT_S) for item in items]

    sizes = [len(run) for run in later_runs(worker)]
    assert max(sizes) > 4, "the first batch did not fit"
    assert all(size <= 4 for size in sizes[-3:])
    assert "Out of memory" in worker.log()


def test_an_item_too_large_alone_fails_alone(shared_worker: WorkerFixture) -> None:
    """One of eight does not fit even by itself; it fails with that error, the others succeed (case 50)."""
    worker = shared_worker("faulty")
    tight = worker.task("tight")

    with busy(worker, tight):
        items = [tight.delay(99 if x == 5 else x) for x in range(8)]
        wait_for_waiting(worker, 8)

    with pytest.raises(MemoryError, match="no room"):
        items[5].get(timeout=WAIT_S)
    assert [2 * x for x in range(8) if x != 5] == [items[x].get(timeout=WAIT_S) for x in range(8) if x != 5]
    assert 2 == tight.delay(1).get(timeout=WAIT_S)
