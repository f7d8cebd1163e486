"""The loop of a prefork pool process, at the two ends where jobs come in and results go out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from billiard.common import terminate_handler_fired  # type: ignore[attr-defined]
from billiard.pool import DEATH, READY, Worker
from billiard.process import current_process

from .errors import ExceptionInfo

__all__ = ["Job", "Workloop", "call_of", "is_death", "result_in", "with_result"]

Job = Any


class _Result(NamedTuple):
    """What the loop puts at the end of a job."""

    number: Any
    index: Any
    outcome: tuple[bool, Any]
    inq_fd: int


class Workloop:
    """This process's own loop, which takes its ends up after ``worker_process_init``.

    Attributes:
        jobs_fd: readable when there is a job.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._wait_for_job = worker.wait_for_job
        self._put = worker.outq.put
        self._lock = threading.Lock()
        self.jobs_fd: int = worker.inq._reader.fileno()

    @classmethod
    def own(cls) -> Workloop | None:
        """That of this process; None elsewhere, and where the loop has more to do than to read, run and put."""
        worker: Any = getattr(current_process(), "_target", None)
        if not isinstance(worker, Worker):
            return None
        found: Any = worker
        simple = not (found.synq or found.maxtasks or found.max_memory_per_child) and hasattr(found.inq, "_reader")
        return cls(found) if simple else None

    def replace(self, wait_for_job: Callable[[], Job], put: Callable[[Any], None]) -> None:
        """Let the loop read and put by these."""
        self._worker.wait_for_job, self._worker.outq.put = wait_for_job, put

    def wait_for_job(self) -> Job:
        """The next job, or None when there was nothing to be had.

        Raises:
            SystemExit: there will be no more.
        """
        return self._wait_for_job()

    def put(self, message: Any) -> None:
        """Tell the main process, from any thread."""
        with self._lock:
            self._put(message)


def call_of(job: Job) -> tuple[Any, tuple[Any, ...]]:
    """The function of a job, and its positional arguments."""
    _, (_, _, function, args, _) = job
    return function, args


def result_in(message: Any) -> Any:
    """What the job has returned whose end this message tells; None for any other message."""
    kind, facts = message
    if kind != READY:
        return None
    succeeded, value = _Result(*facts).outcome
    return value if succeeded else None


def is_death(message: Any) -> bool:
    """Whether this message tells that the process ends."""
    return bool(message[0] == DEATH)


def with_result(message: Any, make: Callable[[], Any]) -> Any:
    """The same message with another result, or with what was raised instead; None: the process is ending."""
    kind, facts = message
    try:
        outcome = (True, make())
    except BaseException:  # as the loop does it
        if terminate_handler_fired():
            return None
        outcome = (False, ExceptionInfo())
    return kind, tuple(_Result(*facts)._replace(outcome=outcome))
