"""A worker whose model is busy, so that what a test sends next waits in the buffer; and looks into that buffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery import Task
from celery.result import AsyncResult

from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess


@contextmanager
def busy(worker: WorkerProcess, task: Task) -> Iterator[AsyncResult]:
    """Let the model stand at its gate with one call (of 0) inside the `with` block."""
    runs = len(worker.journal.entries("run"))
    with worker.journal.closed_gate():
        running = task.delay(0)
        worker.journal.wait_for("run", runs + 1)
        yield running


def waiting(worker: WorkerProcess) -> int:
    """How many items wait in the worker's buffer."""
    count: int = worker.inspect("stats")["batching"]["waiting"]
    return count


def wait_for_waiting(worker: WorkerProcess, count: int) -> None:
    """Wait until so many items are in the worker's buffer."""
    wait_until(lambda: waiting(worker) == count, f"{count} items wait", saw=lambda: worker.inspect("stats"))


def jobs_written(worker: WorkerProcess) -> int:
    """How many jobs the worker has written to the processes of its pool."""
    count: int = worker.inspect("stats")["pool"]["writes"]["total"]
    return count


def later_runs(worker: WorkerProcess) -> list[list[int]]:
    """The items of each run after the first, which kept the worker busy."""
    return [entry["items"] for entry in worker.journal.entries("run")[1:]]
