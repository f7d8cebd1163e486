"""A slot that nobody would give back: one process has died with two jobs, and the pool gave back one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kombu.asynchronous.semaphore import LaxBoundedSemaphore

from celery_batching._celery_internals import free_lost_slot


def a_worker(*jobs: object) -> Any:
    """One slot, which is taken, and a pool that has these jobs."""
    semaphore = LaxBoundedSemaphore(1)
    semaphore.acquire(lambda: None)
    pool = SimpleNamespace(_pool=SimpleNamespace(_cache=dict(enumerate(jobs))))
    worker = SimpleNamespace(semaphore=semaphore, _quick_release=semaphore.release, pool=pool, _process_task_sem=print)
    worker.process_task = worker._process_task_sem
    return worker


@pytest.mark.parametrize(("jobs", "served"), [((), ["waiter"]), (("a job",), [])])
def test_who_waits_is_served_when_no_job_is_left(jobs: tuple[object, ...], served: list[str]) -> None:
    """While there is a job, its end gives the slot back."""
    worker, got = a_worker(*jobs), list[str]()
    worker.semaphore.acquire(lambda: got.append("waiter"))
    free_lost_slot(worker)
    assert served == got


def test_there_are_no_more_slots_than_before() -> None:
    """Nobody waits: nothing is given back that might still be on its way."""
    worker = a_worker()
    free_lost_slot(worker)
    assert 0 == worker.semaphore.value
