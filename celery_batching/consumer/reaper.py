"""Notices at once when a pool process has ended, and ends the worker when too many die (prefork pool)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .._celery_internals import PoolProcess, exit_status, free_lost_slot, on_process_end, pool_processes, reap
from ..core.deaths import Deaths

__all__ = ["Reaper"]

#: Seconds between two looks. billiard is told of an end by the process's closing pipe, which may be
#: before the process can be waited for; it then looks again after 5 s.
LOOK_S = 0.2


class Reaper:
    """Looks after the processes of a prefork pool on an event loop.

    Args:
        consumer: Celery's consumer, for its pool and timer.
        most_in_a_minute: processes that may die within 60 s.
        on_too_many: called with the reason why the worker has to end.
    """

    def __init__(self, consumer: Any, most_in_a_minute: int, on_too_many: Callable[[str], None]) -> None:
        self._consumer = consumer
        self._deaths = Deaths(most_in_a_minute)
        self._on_too_many = on_too_many
        self._timer: Any = None
        self._told = False
        self._up: set[PoolProcess] = set()

    def start(self) -> None:
        """Look from now on; on a pool without processes there is nothing to see."""
        self.stop()
        if self._consumer.hub is not None and pool_processes(self._consumer.pool):
            on_process_end(self._consumer.pool, self._on_end)
            self._timer = self._consumer.timer.call_repeatedly(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def has_worked(self) -> None:
        """A process has begun with a batch, so its setup was done, whether a look saw it in time or not."""
        self._deaths.came_up()

    def _look(self) -> None:
        reap(self._consumer.pool)
        free_lost_slot(self._consumer.controller)
        up = {process for process, is_up in pool_processes(self._consumer.pool).items() if is_up}
        if up - self._up:
            self._deaths.came_up()
        self._up = up

    def _on_end(self, process: PoolProcess) -> None:
        status = exit_status(process)
        if status is None or self._told:
            return
        # One that came up and died between two looks counts as not up; if it had worked, the next
        # one that works ends the row.
        reason = self._deaths.died(time.monotonic(), status, in_setup=process not in self._up)
        if reason is not None:
            self._told = True
            self._on_too_many(reason)
