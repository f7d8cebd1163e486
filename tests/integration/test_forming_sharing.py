"""Several batch tasks on one worker share its slot: the one whose oldest item has waited longest goes first."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable

import pytest

from tests.support.batch_lines import batches_of
from tests.support.busy import busy, wait_for_waiting
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Calls of each of two tasks, and their largest batch.
CALLS, SIZE = 200, 20


def test_the_oldest_head_goes_first(shared_worker: WorkerFixture) -> None:
    """When the slot is free the task whose head came first runs, then the other, each with all that waits."""
    worker = shared_worker("forming")
    greedy, rival = worker.task("greedy"), worker.task("rival")

    with busy(worker, greedy):
        results = [task.delay(x) for x, task in enumerate((rival, greedy, greedy, rival, greedy), start=1)]
        wait_for_waiting(worker, 5)

    assert [2, 4, 6, 8, 10] == [one.get(timeout=30) for one in results]
    runs = [(entry["task"], entry["items"]) for entry in worker.journal.entries("run")]
    assert [("greedy", [0]), ("rival", [1, 4]), ("greedy", [2, 3, 5])] == runs


def test_two_loaded_tasks_keep_their_batches_large(shared_worker: WorkerFixture) -> None:
    """Two tasks with 200 calls each, interleaved, keep large batches to the end, and neither starves (case 3)."""
    worker = shared_worker("timed", settings={"batching_max_batch_size": SIZE})
    first, second = worker.task("first"), worker.task("second")

    with worker.journal.closed_gate():
        results = [task.delay(x) for x in range(CALLS) for task in (first, second)]

    assert [2 * x for x in range(CALLS) for _ in range(2)] == [one.get(timeout=30) for one in results]
    batches = batches_of(worker, 2 * CALLS)
    for task in (first, second):
        sizes = [batch.size for batch in batches if batch.task == task.name]
        assert CALLS == sum(sizes)
        assert statistics.median(sizes) >= SIZE / 2
        assert statistics.median(sizes[len(sizes) // 2 :]) >= SIZE / 2
    both = batches[: -(len(batches) // 4)]  # near the end one of them may have no more calls
    assert max(len(list(turns)) for _, turns in itertools.groupby(both, lambda batch: batch.task)) <= 3
