"""A second thread of a prefork process, for what is not the model's: while one batch runs, it gets the next one ready
and stores the results of the one before.

Only for batches that nobody could tell it of: whose items are all spared Celery's tracer, so that
no code of the user's runs in it but the model, in the main thread as ever; and that no time limit may end.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._celery_internals import Job, Workloop, call_of, result_in, with_result
from .messages import BatchPayload

if TYPE_CHECKING:
    from .batch_run import BatchRun

__all__ = ["Clerk", "Deferred"]


class Deferred:
    """In the place of a batch's report: the clerk makes it."""

    def __init__(self, run: BatchRun) -> None:
        self.run = run


class Clerk:
    """Stands between the loop of this process and the main process.

    Args:
        loop: whose ends are replaced.
        get_ready: makes a run of a payload and begins with it; None where the clerk may not.
    """

    def __init__(self, loop: Workloop, get_ready: Callable[[BatchPayload], BatchRun | None]) -> None:
        self._loop = loop
        self._get_ready = get_ready
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._reading = threading.Lock()
        self._wanted = False
        self._wake, self._woken = os.pipe()
        self._read: list[Job | BaseException] = []  # at most one
        self._run: BatchRun | None = None
        loop.replace(self._wait_for_job, self._put)

    def look_ahead(self) -> None:
        """The model is about to run: read the next job meanwhile."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="batching-clerk", daemon=True)
            self._thread.start()
        self._wanted = True
        self._work.put(self._read_ahead)

    def take(self, payload: BatchPayload) -> BatchRun | None:
        """The run of this batch, if it is ready."""
        run, self._run = self._run, None
        return run if run is not None and run.payload is payload else None

    def has_next(self) -> bool:
        """Whether the next batch is ready; the model has ended, so nothing more is read ahead."""
        self._stop_reading()
        return self._run is not None

    # The loop's two ends, in the main thread

    def _wait_for_job(self) -> Job:
        self._stop_reading()
        if not self._read:
            return self._loop.wait_for_job()
        read = self._read.pop()
        if isinstance(read, BaseException):
            raise read
        return read

    def _put(self, message: Any) -> None:
        deferred = result_in(message)
        if isinstance(deferred, Deferred):
            self._stop_reading()
            self._work.put(lambda: self._loop.put(with_result(message, deferred.run.end)))
        else:
            self._loop.put(message)

    def _stop_reading(self) -> None:
        if not self._wanted:
            return
        self._wanted = False
        os.write(self._woken, b"x")
        with self._reading:  # it may be getting a batch ready
            os.read(self._wake, 1)

    # The other thread

    def _serve(self) -> None:
        while True:
            self._work.get()()

    def _read_ahead(self) -> None:
        with self._reading:
            if not self._wanted or self._read:
                return
            readable, _, _ = select.select([self._loop.jobs_fd, self._wake], [], [])
            if self._wake in readable:
                return
            try:
                job = self._loop.wait_for_job()
            except BaseException as exc:
                self._read.append(exc)
                return
            if job:
                self._read.append(job)
                self._prepare(job)

    def _prepare(self, job: Job) -> None:
        _, args = call_of(job)
        payload = args[0] if args else None
        if isinstance(payload, BatchPayload):
            with suppress(Exception):  # then the main thread meets it, and tells of it
                self._run = self._get_ready(payload)
