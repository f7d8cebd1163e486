"""Notices at once when a pool process has ended, and ends the worker when too many die (prefork pool)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .._celery_internals import PoolProcess, exit_status, free_lost_slot, pool_processes, reap
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
        self._known: dict[PoolProcess, bool] = {}  # and whether it has come up

    def start(self) -> None:
        """Look from now on; on a pool without processes there is nothing to see."""
        self.stop()
        if self._consumer.hub is not None and pool_processes(self._consumer.pool):
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
        now_known = pool_processes(self._consumer.pool)
        for process, was_up in self._known.items():
            if process not in now_known and (status := exit_status(process)) is not None:
                reason = self._deaths.died(time.monotonic(), status, in_setup=not was_up)
                if reason is not None:
                    self._on_too_many(reason)
        if any(up and not self._known.get(process) for process, up in now_known.items()):
            self._deaths.came_up()
        self._known = now_known
