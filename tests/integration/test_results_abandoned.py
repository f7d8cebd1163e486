"""Callers who give up harm nobody: not the worker, and not the callers who come after them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from celery import Task

from tests.support.batch_lines import batches_of
from tests.support.callers import call_from_threads
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

#: Threads of the client; in each a call that gives up takes a second, whatever its timeout (as Celery is made).
THREADS = 100


def test_abandoned_calls_leave_the_worker_as_it_was(shared_worker: WorkerFixture, tmp_path: Path) -> None:
    """Four hundred calls whose callers give up after 10 ms are run; the worker keeps no memory of them (case 28)."""
    worker = shared_worker("results")
    square = worker.task("square")
    abandon(worker, tmp_path, square, 100)
    batches_of(worker, 100)
    before = memory_of(worker)

    abandon(worker, tmp_path, square, 400)
    batches_of(worker, 500, timeout=30)

    assert memory_of(worker) - before < 2**21
    assert {"waiting": 0, "running": []} == worker.inspect("stats")["batching"]
    assert 49 == square.delay(7).get(timeout=30)


def test_abandoned_calls_do_not_disturb_patient_ones(shared_worker: WorkerFixture, tmp_path: Path) -> None:
    """After two hundred calls that nobody waits for, two hundred patient callers get their answers (case 29)."""
    worker = shared_worker("results")
    square = worker.task("square")

    abandon(worker, tmp_path, square, 200)

    answers = call_from_threads(worker.live, tmp_path, square, calls=200, threads=THREADS)
    assert [x * x for x in range(200)] == answers


def abandon(worker: WorkerProcess, folder: Path, task: Task, count: int) -> None:
    """Make so many calls while the model is busy, give each up after 10 ms, and let the model go on."""
    with worker.journal.closed_gate():
        gave_up = call_from_threads(worker.live, folder, task, kind="hurried", calls=count, threads=THREADS)
    assert [True] * count == gave_up


def memory_of(worker: WorkerProcess) -> int:
    """Bytes that the worker's processes hold together."""
    return sum(psutil.Process(pid).memory_info().rss for pid in (worker.pid, *worker.children()))
