"""The time limits, counted for each run of the model and not for the batch as a whole.

The pool starts one clock for a job and signals once. A batch that is split runs the model
several times in that job, so the signal is only taken as a hint: the run it falls into gets the
rest of its own time first, further runs have a clock of their own, and between runs, while
results are stored, nothing is raised.

The pool's hard limit kills the process and cannot be moved from in here. A further run that might
not end before it is not begun: its items go back to the main process, for a job of their own.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from .._celery_internals import SIG_SOFT_TIMEOUT

__all__ = ["RunClock"]

#: How much of the hard limit is used: the pool started its clock somewhat earlier.
HARD_SHARE = 0.9

#: Seconds of its limit that a run may still have and yet be taken for out of time.
SLACK_S = 0.005


class RunClock:
    """Raises SoftTimeLimitExceeded in a run that exceeds the soft limit, and tells how near the hard one is.

    Args:
        limit_s: the soft limit, in seconds for each run; None for none.
        hard_limit_s: the hard limit, in seconds from now on; None for none.
    """

    def __init__(self, limit_s: float | None, hard_limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._end = None if hard_limit_s is None else time.monotonic() + hard_limit_s * HARD_SHARE
        self._started: float | None = None
        self._job_clock_struck = False

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Take the pool's signal over for the length of a batch.

        Only in the main thread of a pool process: elsewhere the pool sends none.
        """
        if self._limit_s is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {SIG_SOFT_TIMEOUT: self._on_job_clock, signal.SIGALRM: self._on_run_clock}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """One run of the model."""
        self._started = time.monotonic()
        if self._job_clock_struck:
            self._ring_in(self._limit_s or 0.0)
        try:
            yield
        finally:
            self._started = None
            if self._job_clock_struck:
                self._ring_in(0.0)

    def has_time_for(self, seconds: float) -> bool:
        """Whether a run may begin that takes so long, or as long as the soft limit allows."""
        return self._end is None or time.monotonic() + (self._limit_s or seconds) <= self._end

    def _on_job_clock(self, number: int, frame: Any) -> None:  # noqa: ARG002
        self._job_clock_struck = True
        if self._started is None:
            return
        left = (self._limit_s or 0.0) - (time.monotonic() - self._started)
        if left <= SLACK_S:
            raise SoftTimeLimitExceeded
        self._ring_in(left)

    def _on_run_clock(self, number: int, frame: Any) -> None:  # noqa: ARG002
        if self._started is not None:
            raise SoftTimeLimitExceeded

    @staticmethod
    def _ring_in(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)  # 0 stops it
