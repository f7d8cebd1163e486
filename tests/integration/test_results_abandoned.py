"""Callers who give up harm nobody: not the worker, and not the callers who come after them."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest
from celery import Task, exceptions
from celery.result import AsyncResult

from tests.support.batch_lines import batches_of
from tests.support.callers import call_from_threads
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: Threads of the client.
THREADS = 32


def test_abandoned_calls_leave_the_worker_as_it_was(shared_worker: WorkerFixture) -> None:
    """Five hundred calls whose callers give up after 10 ms are run; the worker keeps no memory of them (case 28)."""
    worker = shared_worker("results")
    square = worker.task("square")
    abandon(worker, square, 200)
    batches_of(worker, 200)
    before = memory_of(worker)

    abandon(worker, square, 500)
    batches_of(worker, 700, timeout=30)

    assert memory_of(worker) - before < 2**21
    assert {"waiting": 0, "running": []} == worker.inspect("stats")["batching"]
    assert 49 == square.delay(7).get(timeout=10)


def test_abandoned_calls_do_not_disturb_patient_ones(shared_worker: WorkerFixture) -> None:
    """After two hundred calls that nobody waits for, two hundred patient callers get their answers (case 29)."""
    worker = shared_worker("results")
    square = worker.task("square")

    abandon(worker, square, 200)

    answers = call_from_threads(worker.app, THREADS, lambda x: square.delay(x).get(timeout=30), range(200))
    assert [x * x for x in range(200)] == answers


def abandon(worker: WorkerProcess, task: Task, count: int) -> None:
    """Make so many calls while the model is busy, give each up after 10 ms, and let the model go on."""
    with worker.journal.closed_gate():
        call_from_threads(worker.app, THREADS, lambda x: give_up(task.delay(x)), range(count))


def memory_of(worker: WorkerProcess) -> int:
    """Bytes that the worker's processes hold together."""
    return sum(psutil.Process(pid).memory_info().rss for pid in (worker.pid, *worker.children()))


def give_up(call: AsyncResult) -> None:
    """Wait for the result in vain, and forget it, as the manual says."""
    with pytest.raises(exceptions.TimeoutError):
        call.get(timeout=0.01)
    call.forget()
