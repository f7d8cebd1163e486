"""What a worker logs: one line for each batch, in a form that people may grep; lines for items at DEBUG only."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.batch_lines import batches_of
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

TIMES = r"waited=\d+\.\d{3}s run=\d+\.\d{3}s"

#: Celery's own lines about one task.
ITEM_LINE = re.compile(r"Task outcomes\.mixed\[\S+\] (received|succeeded)")


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_one_line_tells_how_a_batch_went(shared_worker: WorkerFixture, pool: str) -> None:
    """Each batch is one line at INFO: name, size, reason, times, and how many items ended in which way."""
    worker = shared_worker("outcomes", pool=pool)

    run_mixed_batches(worker)

    lines = [line.partition(": INFO/MainProcess] ")[2] for line in worker.log().splitlines() if "Batch " in line]
    patterns = [
        rf"Batch outcomes\.mixed size=8 reason=full {TIMES} succeeded=6 failed=1 retried=1",
        rf"Batch outcomes\.mixed size=1 reason=wait {TIMES} succeeded=1 failed=0 retried=0",
    ]
    assert len(patterns) == len(lines), lines
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, lines, strict=True)), lines
    assert ITEM_LINE.search(worker.log()) is None


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_items_have_lines_of_their_own_at_debug(shared_worker: WorkerFixture, pool: str) -> None:
    """At DEBUG Celery's lines about each received and succeeded task are there, and marked as such."""
    worker = shared_worker("outcomes", pool=pool, loglevel="DEBUG")

    run_mixed_batches(worker)

    found = [(ITEM_LINE.search(line), line) for line in worker.log().splitlines()]
    lines = [(match[1], "DEBUG/" in line) for match, line in found if match]
    assert 9 == lines.count(("received", True))
    assert 7 == lines.count(("succeeded", True))
    assert 16 == len(lines)
    assert 2 == len(batches_of(worker, 9))


def run_mixed_batches(worker: WorkerProcess) -> None:
    """Make a batch of six items that succeed, one that fails and one that is retried, and a batch of that."""
    # In one round trip: on a busy machine eight calls, one by one, might take longer than the longest wait.
    results = worker.task("mixed").delay_many([1, 2, 3, 4, 5, 6, -7, 0]).results
    assert [2, 4, 6, 8, 10, 12, 0] == [one.get(timeout=30) for one in (*results[:6], results[7])]
    assert "-7" == str(results[6].get(timeout=10, propagate=False))
    batches_of(worker, 9)
