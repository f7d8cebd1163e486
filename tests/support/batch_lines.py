"""The batches in a worker's log, which come a moment after the results that the callers see."""

from __future__ import annotations

from tests.support.waiting import PATIENCE_S, wait_until
from tests.support.worker_process import BatchLine, WorkerProcess


def batches_of(worker: WorkerProcess, items: int, timeout: float = PATIENCE_S) -> list[BatchLine]:
    """The batches that this test has made, as soon as they hold so many items together."""

    def logged() -> int:
        return sum(batch.size for batch in worker.batches())

    wait_until(lambda: logged() >= items, f"batches of {items} items in the log", timeout, saw=logged)
    return worker.batches()


def sizes_of(worker: WorkerProcess, items: int) -> list[int]:
    """The sizes of those batches, in order."""
    return [batch.size for batch in batches_of(worker, items)]
