"""One full batch ahead: sent to the pool process while it still runs another, so that it need not wait for its next.

A batch that is closed early takes no further items, and those in it can no longer be revoked,
overtaken or left out when they expire. So only a full one is, and only where runs are so short
that the hop between the processes counts. Behind a batch with a time limit none is: a signal that
comes late would strike the wrong one.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from .._celery_internals import PreforkPool, has_semaphore, others_wait_for_a_slot, recycles_processes
from ..core.items import Reason
from .settle import RunningBatch

__all__ = ["Ahead"]

#: Seconds that the last run of a task may have taken for a batch to be sent ahead behind the next.
#: The hop takes some 10 ms: a few hundredths of this.
SHORT_RUN_S = 0.25

#: Seconds that it must have taken for a second thread to be worth its while.
LONG_RUN_S = 0.001


class Ahead:
    """Says when a batch may be sent ahead, from what the pool is and what it runs.

    Args:
        consumer: Celery's consumer.
        wanted: whether the worker's options allow it.

    Attributes:
        possible: whether it ever may.
    """

    def __init__(self, consumer: Any, *, wanted: bool) -> None:
        worker = consumer.controller
        self._worker = worker
        self.possible = (
            wanted
            and sys.platform == "linux"  # whose pipes tell how much room they have
            and isinstance(worker.pool, PreforkPool)
            and has_semaphore(worker)
            and not recycles_processes(worker)
        )
        self._short: set[str] = set()  # names of tasks whose batches may have one behind them
        self._long: set[str] = set()  # of those whose model takes long enough for something else to be done meanwhile
        self._large: set[str] = set()  # of those never

    def learn(self, batch: RunningBatch, run_s: float) -> None:
        """Note how long the model took, and whether there was room for the batch."""
        name = batch.task.name
        if not batch.fits:
            self._large.add(name)
        (self._long.add if run_s >= LONG_RUN_S else self._long.discard)(name)
        if run_s >= SHORT_RUN_S or name in self._large:
            self._short.discard(name)
        elif run_s and batch.reason is not Reason.SPLIT:
            self._short.add(name)

    def pays(self, batch: RunningBatch) -> bool:
        """Whether the process should get the next batch ready while the model runs for this one."""
        name = batch.task.name
        return self.possible and self._worker.pool.num_processes == 1 and name in self._short and name in self._long

    def fits(self, running: Collection[RunningBatch]) -> bool:
        """Whether the process has room for a batch behind what it runs, and nobody else waits for it."""
        # With several processes, another one may be free earlier than the one that it was sent to.
        if len(running) != 1 or not self.possible or self._worker.pool.num_processes != 1:
            return False
        (batch,) = running
        return (
            batch.began
            and not batch.limited
            and batch.reason is not Reason.SPLIT
            and batch.task.name in self._short
            and not others_wait_for_a_slot(self._worker)
        )
