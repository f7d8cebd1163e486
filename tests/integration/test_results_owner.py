"""Every caller gets the result of its own call: over workers, retries, client processes and threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from celery.result import AsyncResult

from tests.support.batch_lines import batches_of
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.callers import answers_to, call_from_threads, start_callers
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

#: Calls of each client process.
CALLS = 20


def test_three_workers_and_retries_mix_nothing_up(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """Of 500 calls and more on three workers with an uneven, flaky model each gets its own argument back (case 21)."""
    live = open_site()
    workers = [start_worker("results", site=live, pool="threads", wait_ready=False) for _ in range(3)]
    for worker in workers:
        worker.wait_ready()
    flaky = live.app("results").tasks["results.flaky"]

    calls: list[tuple[AsyncResult, int]] = []

    def all_have_work() -> bool:
        calls.extend((flaky.delay(f"payload {x}"), x) for x in range(len(calls), len(calls) + 500))
        return all(worker.batches() for worker in workers)

    wait_until(all_have_work, "each worker has had a batch", saw=lambda: [worker.batches() for worker in workers])
    assert [[call.id, f"payload {x}"] for call, x in calls] == [call.get(timeout=30) for call, _ in calls]
    retried = [sum(batch.retried for batch in worker.batches()) for worker in workers]
    assert sum(retried) > 0


@pytest.mark.parametrize(("backend", "threads"), [("redis", 8), ("rpc", 1), ("sqlite", 8)])
def test_two_client_processes_get_their_own(
    shared_worker: WorkerFixture, backend: str, threads: int, tmp_path: Path
) -> None:
    """Two client processes at once share the batches, and each sees its own results on any backend (case 16)."""
    worker = shared_worker("results", pool="threads", broker="rabbitmq", backend=backend)

    square = worker.task("square")

    with busy(worker, square) as running:
        clients = [
            start_callers(worker.live, tmp_path, square, first=first, calls=CALLS, threads=threads)
            for first in (0, 100)
        ]
        wait_for_waiting(worker, 2 * threads)

    assert 0 == running.get(timeout=30)
    for client, first in zip(clients, (0, 100), strict=True):
        assert [x * x for x in range(first, first + CALLS)] == answers_to(client)
    assert 2 * threads == len(later_runs(worker)[0])


def test_threads_of_a_web_process_mix_nothing_up(shared_worker: WorkerFixture, tmp_path: Path) -> None:
    """A Flask app with 32 threads that make 1000 calls answers each request with its own result (case 27)."""
    worker = shared_worker("results")

    answers = call_from_threads(worker.live, tmp_path, worker.task("square"), kind="flask", calls=1000, threads=32)

    assert [x * x for x in range(1000)] == answers


def test_ignored_results_leave_nothing_behind(shared_worker: WorkerFixture) -> None:
    """In one batch, calls that ignore their result are run but leave no key, and the others resolve (case 17)."""
    worker = shared_worker("results")
    square = worker.task("square")

    with busy(worker, square) as running:
        ignored = [square.apply_async((x,), ignore_result=True) for x in range(5)]
        wanted = [square.delay(x) for x in range(5, 10)]
        wait_for_waiting(worker, 10)

    assert [0, 25, 36, 49, 64, 81] == [one.get(timeout=30) for one in (running, *wanted)]
    assert [list(range(10))] == later_runs(worker)
    assert 10 == batches_of(worker, 11)[-1].succeeded
    keys = worker.live.backend.client.keys("celery-task-meta-*")
    assert not {f"celery-task-meta-{one.id}" for one in ignored}.intersection(keys)
    assert {f"celery-task-meta-{one.id}" for one in wanted} <= set(keys)
