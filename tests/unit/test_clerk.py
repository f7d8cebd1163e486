"""The clerk between the loop of a pool process and the main process."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from billiard.pool import ACK, DEATH, READY, TASK

from celery_batching.pool.clerk import Clerk, Deferred
from celery_batching.pool.messages import BatchPayload
from tests.support.waiting import wait_until


class Loop:
    """In place of the process's own loop: a pipe that has a byte for each job."""

    def __init__(self) -> None:
        self.jobs_fd, self._written = os.pipe()
        self._jobs: deque[Any] = deque()
        self.told: list[Any] = []
        self.readers: list[str] = []

    def replace(self, wait_for_job: Callable[[], Any], put: Callable[[Any], None]) -> None:
        self.next_job, self.end_of_job = wait_for_job, put

    def send(self, job: Any) -> None:
        self._jobs.append(job)
        os.write(self._written, b"x")

    def wait_for_job(self) -> Any:
        os.read(self.jobs_fd, 1)
        self.readers.append(threading.current_thread().name)
        job = self._jobs.popleft()
        if isinstance(job, BaseException):
            raise job
        return job

    def put(self, message: Any) -> None:
        self.told.append(message)

    def close(self) -> None:
        os.close(self.jobs_fd)
        os.close(self._written)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def a_payload(name: str) -> BatchPayload:
    return BatchPayload(name, "id", "full", [], None, None, None, bulk=True, more=True, fast_trace=True)


def a_job(*args: Any) -> Any:
    return TASK, (1, None, print, args, {})


def a_run(payload: BatchPayload) -> Any:
    return SimpleNamespace(payload=payload)


def test_the_next_batch_is_ready_when_the_model_ends(loop: Loop) -> None:
    """It was read by the other thread, and only while the model ran."""
    clerk, payload = Clerk(loop, a_run), a_payload("next")
    assert not clerk.has_next()
    clerk.look_ahead()
    loop.send(a_job(payload))
    wait_until(lambda: loop.readers, "the job is read")
    assert clerk.has_next()
    job = loop.next_job()
    assert a_job(payload) == job
    run = clerk.take(payload)
    assert run is not None
    assert run.payload is payload
    assert ["batching-clerk"] == loop.readers
    assert clerk.take(payload) is None


def test_what_comes_later_is_read_by_the_loop(loop: Loop) -> None:
    """When the model ends, nobody reads any more but the loop, however often that was so before."""
    clerk = Clerk(loop, a_run)
    for _ in range(50):
        clerk.look_ahead()
        assert not clerk.has_next()
    loop.send(a_job(1))
    assert a_job(1) == loop.next_job()
    assert [threading.current_thread().name] == loop.readers


def test_no_more_than_one_job_is_read(loop: Loop) -> None:
    """The second one stays in the pipe, also when the reading was asked for twice."""
    clerk = Clerk(loop, a_run)
    for number in range(3):
        loop.send(a_job(number))
    clerk.look_ahead()
    clerk.look_ahead()
    wait_until(lambda: loop.readers, "one is read")
    assert a_job(0) == loop.next_job()
    assert 1 == len(loop.readers)
    assert [a_job(1), a_job(2)] == [loop.next_job(), loop.next_job()]


@pytest.mark.parametrize("job", [a_job(), a_job("no payload"), a_job(a_payload("of the user's code"))], ids=str)
def test_other_jobs_are_left_to_the_loop(loop: Loop, job: Any) -> None:
    """Plain tasks, and batches that the clerk may not begin with."""
    clerk = Clerk(loop, lambda payload: None)
    clerk.look_ahead()
    loop.send(job)
    wait_until(lambda: loop.readers, "the job is read")
    assert not clerk.has_next()
    assert job == loop.next_job()


def test_the_end_reaches_the_loop(loop: Loop) -> None:
    """What the reading raises is raised where the process can end."""
    clerk = Clerk(loop, a_run)
    clerk.look_ahead()
    loop.send(SystemExit(3))
    wait_until(lambda: loop.readers, "the end is read")
    with pytest.raises(SystemExit) as ended:
        loop.next_job()
    assert 3 == ended.value.code


def test_an_error_while_a_batch_is_got_ready_is_the_loops(loop: Loop) -> None:
    """It runs into it again, and tells of it."""

    def fail(payload: BatchPayload) -> Any:
        raise KeyError(payload.task_name)

    clerk, payload = Clerk(loop, fail), a_payload("unknown")
    clerk.look_ahead()
    loop.send(a_job(payload))
    wait_until(lambda: loop.readers, "the job is read")
    assert not clerk.has_next()
    assert a_job(payload) == loop.next_job()
    assert clerk.take(payload) is None


def test_results_are_told_by_the_clerk(loop: Loop) -> None:
    """In their order, each when it is stored; the pool must not hear of the next job before."""
    clerk, stored, told_by = Clerk(loop, a_run), threading.Event(), []
    clerk.look_ahead()

    def end() -> str:
        assert stored.wait(30)
        told_by.append(threading.current_thread().name)
        return "report"

    for number in (1, 2):
        loop.end_of_job((READY, (number, None, (True, Deferred(SimpleNamespace(end=end))), 7)))
    loop.end_of_job((ACK, (3,)))
    loop.end_of_job((DEATH, (4,)))
    assert [(DEATH, (4,))] == loop.told
    stored.set()
    wait_until(lambda: len(loop.told) == 4, "all are told")
    reports = [(READY, (number, None, (True, "report"), 7)) for number in (1, 2)]
    assert [*reports, (ACK, (3,))] == loop.told[1:]
    wait_until(lambda: not clerk._tells, "nothing is on its way")
    loop.end_of_job((ACK, (5,)))
    assert (ACK, (5,)) == loop.told[-1]
    assert ["batching-clerk"] * 2 == told_by


def test_an_error_while_results_are_stored_is_told(loop: Loop) -> None:
    """As the loop tells what a job raises."""
    clerk = Clerk(loop, a_run)
    clerk.look_ahead()

    def end() -> str:
        raise OSError("no space left")

    loop.end_of_job((READY, (1, None, (True, Deferred(SimpleNamespace(end=end))), 7)))
    wait_until(lambda: loop.told, "it is told")
    ((kind, (number, _, (succeeded, info), fd)),) = loop.told
    assert (READY, 1, False, 7) == (kind, number, succeeded, fd)
    assert "no space left" in str(info.exception)
