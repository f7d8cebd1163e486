"""A second thread of a prefork process, for what is not the model's: while one batch runs, it gets the next one ready
and stores the results of the one before.

Only for batches that nobody could tell it of: whose items are all spared Celery's tracer, so that
no task code but the model runs for them, in the main thread as ever; and that no time limit may end.
"""

from __future__ import annotations

import functools
import logging
import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .._celery_internals import Job, Workloop, call_of, is_death, result_in, with_result
from .messages import BatchPayload

if TYPE_CHECKING:
    from .batch_run import BatchRun

__all__ = ["Clerk", "Deferred"]

logger = logging.getLogger(__name__)


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
        self._counting = threading.Lock()
        self._tells = 0  # messages on their way through the other thread
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
            self._do(lambda: self._report(message, deferred.run))
        elif self._tells and not is_death(message):
            # The pool drops what it knows of a job when its process takes the next one: its end must come first.
            self._do(lambda: self._loop.put(message))
        else:
            self._loop.put(message)

    def _do(self, tell: Callable[[], None]) -> None:
        self._stop_reading()
        with self._counting:
            self._tells += 1
        self._work.put(lambda: self._tell(tell))

    # How the main thread stops the other one's reading: it takes back the wish, wakes it with a byte, and
    # waits until it has let go of the lock, which it holds from its look at the wish to the end of the
    # reading. Only then is the byte taken back, so that nobody is woken by it later.

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
            try:
                self._work.get()()
            except Exception:  # noqa: PERF203 - the next job must find this thread
                logger.exception("Something went wrong beside the model")

    def _tell(self, tell: Callable[[], None]) -> None:
        try:
            tell()
        finally:
            with self._counting:
                self._tells -= 1

    def _report(self, message: Any, run: BatchRun) -> None:
        told = with_result(message, run.end)
        if told is None:
            return  # the process ends, and the main process hears of that
        try:
            self._loop.put(told)
        except Exception as exc:  # what cannot be pickled
            self._loop.put(with_result(message, functools.partial(_fail, repr(exc))))

    def _read_ahead(self) -> None:
        with self._reading:
            if not self._wanted or self._read:
                return
            look = select.poll()
            look.register(self._wake, select.POLLIN)
            look.register(self._loop.jobs_fd, select.POLLIN)
            if self._wake in dict(look.poll()):
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
        self._run = None
        _, args = call_of(job)
        payload = args[0] if args else None
        if isinstance(payload, BatchPayload):
            with suppress(Exception):  # then the main thread meets it, and tells of it
                self._run = self._get_ready(payload)


def _fail(what: str) -> None:
    raise RuntimeError(f"the report of a batch cannot be sent: {what}")
