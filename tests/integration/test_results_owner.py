"""Every caller gets the result of its own call: over workers, retries, client processes and threads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from flask import Flask

from tests.support.apps.results import SIZE
from tests.support.batch_lines import batches_of
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.callers import call_from_threads
from tests.support.child_process import ChildProcess
from tests.support.sites import LiveSite
from tests.support.worker_process import ROOT, WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

#: Calls of each client process.
CALLS = 20


def test_three_workers_and_retries_mix_nothing_up(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """Of 500 calls on three workers with an uneven, flaky model each gets its own argument back (case 21)."""
    live = open_site()
    workers = [start_worker("results", site=live, pool="threads", wait_ready=False) for _ in range(3)]
    for worker in workers:
        worker.wait_ready()
    flaky = live.app("results").tasks["results.flaky"]

    calls = [(flaky.delay(f"payload {x}"), x) for x in range(500)]

    assert [[call.id, f"payload {x}"] for call, x in calls] == [call.get(timeout=30) for call, _ in calls]
    retried = [sum(batch.retried for batch in worker.batches()) for worker in workers]
    assert sum(retried) > 0
    assert all(worker.batches() for worker in workers)


@pytest.mark.parametrize("backend", ["redis", "rpc", "sqlite"])
def test_two_client_processes_get_their_own(shared_worker: WorkerFixture, backend: str, tmp_path: Path) -> None:
    """Two client processes at once share the batches, and each sees its own results on any backend (case 16)."""
    worker = shared_worker("results", pool="threads", broker="rabbitmq", backend=backend)

    with busy(worker, worker.task("square")) as running:
        clients = [start_client(worker, tmp_path / str(first), first) for first in (0, 100)]
        wait_for_waiting(worker, 2 * CALLS)

    assert 0 == running.get(timeout=10)
    for client, first in zip(clients, (0, 100), strict=True):
        assert 0 == client.wait(timeout=40), client.log()
        assert [x * x for x in range(first, first + CALLS)] == json.loads(client.log().splitlines()[-1])
    assert [SIZE, SIZE, 2 * CALLS - 2 * SIZE] == [len(items) for items in later_runs(worker)]


def test_threads_of_a_web_process_mix_nothing_up(shared_worker: WorkerFixture) -> None:
    """A Flask app with 32 threads that make 1000 calls answers each request with its own result (case 27)."""
    worker = shared_worker("results")
    square = worker.task("square")
    web = Flask("web")

    @web.get("/square/<int:x>")
    def view(x: int) -> str:
        return str(square.delay(x).get(timeout=30))

    def visit(x: int) -> str:
        return web.test_client().get(f"/square/{x}").text

    assert [str(x * x) for x in range(1000)] == call_from_threads(worker.app, 32, visit, range(1000))


def test_ignored_results_leave_nothing_behind(shared_worker: WorkerFixture) -> None:
    """In one batch, calls that ignore their result are run but leave no key, and the others resolve (case 17)."""
    worker = shared_worker("results")
    square = worker.task("square")

    with busy(worker, square) as running:
        ignored = [square.apply_async((x,), ignore_result=True) for x in range(5)]
        wanted = [square.delay(x) for x in range(5, 10)]
        wait_for_waiting(worker, 10)

    assert [0, 25, 36, 49, 64, 81] == [one.get(timeout=10) for one in (running, *wanted)]
    assert [list(range(10))] == later_runs(worker)
    assert 10 == batches_of(worker, 11)[-1].succeeded
    keys = worker.live.backend.client.keys("celery-task-meta-*")
    assert not {f"celery-task-meta-{one.id}" for one in ignored}.intersection(keys)
    assert {f"celery-task-meta-{one.id}" for one in wanted} <= set(keys)


def start_client(worker: WorkerProcess, folder: Path, first: int) -> ChildProcess:
    """A client process that calls `square` with numbers from `first` on."""
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.support.client", "results", "results.square", str(first), str(first + CALLS)]
    return ChildProcess(argv, folder=folder, env={**os.environ, **worker.live.site.environ(), "PYTHONPATH": str(ROOT)})
