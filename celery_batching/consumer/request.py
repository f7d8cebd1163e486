"""Celery's request of one item, where being part of a batch makes a difference."""

from __future__ import annotations

import time
from typing import Any

from .._celery_internals import Request, signal_number
from ..pool.item import terminated_here

__all__ = ["BatchRequest"]


class BatchRequest(Request):
    """A request that may run again after the loss of its batch, and be terminated where nothing can be killed."""

    _started = False

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Announce the start, once, also when the item runs again in a fresh process."""
        if not self._started:
            self._started = True
            super().on_accepted(pid, time_accepted)
            return
        self.worker_pid = pid
        self.time_start = time.time() - (time.monotonic() - time_accepted)
        asked_for = self._terminate_on_ack  # type: ignore[attr-defined]
        if asked_for is not None:
            self.terminate(*asked_for)

    def await_rerun(self) -> None:
        """Its process is gone: who terminates the item now must wait for the next one."""
        self.time_start = self.worker_pid = None

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Revoke this item while its batch runs; the others of the batch succeed.

        On prefork the process is killed, as in Celery, and the others run again. Where the pool
        cannot kill, the run goes on for the others and this item's result is dropped.
        """
        try:
            super().terminate(pool, signal)
        except NotImplementedError:
            terminated_here.add(self.id)
            self._announce_revoked("terminated", True, signal_number(signal), False)  # type: ignore[attr-defined]
