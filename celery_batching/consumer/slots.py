"""Slots: room for one batch in the pool, and how to get one from the pool in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._celery_internals import is_solo

__all__ = ["Slots", "slots_of"]

#: Seconds without a further message after which the solo pool takes the broker's backlog for read.
QUIET_S = 0.001

#: Seconds after a batch within which a new message counts as backlog and not as a lone caller.
BACKLOG_S = 0.005


class Slots(Protocol):
    """Room for batches. A slot is free again when the batch that holds it ends."""

    def claim(self, use: Callable[[], None]) -> None:
        """Call ``use`` as soon as a slot is free, which may be at once."""

    def give_back(self) -> None:
        """Return a claimed slot without having used it."""

    def not_before(self, last_arrival: float, last_end: float) -> float:
        """The time before which no batch should leave unless it is full."""


class SemaphoreSlots:
    """Prefork on the event loop: the worker's semaphore, shared with tasks that are not batched.

    The pool itself releases it when a job ends.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def claim(self, use: Callable[[], None]) -> None:
        self._worker._quick_acquire(use)

    def give_back(self) -> None:
        self._worker._quick_release()

    def not_before(self, last_arrival: float, last_end: float) -> float:  # noqa: ARG002
        return 0.0


class CountedSlots:
    """Pools without a semaphore: the batcher counts its running batches, that is all."""

    def claim(self, use: Callable[[], None]) -> None:
        use()

    def give_back(self) -> None:
        pass

    def not_before(self, last_arrival: float, last_end: float) -> float:  # noqa: ARG002
        return 0.0


class SoloSlots(CountedSlots):
    """The solo pool: while the model runs no message is read, so the backlog is read before a batch.

    A lone caller, whose message comes when nothing has run for a while, does not wait.
    """

    def not_before(self, last_arrival: float, last_end: float) -> float:
        return last_arrival + QUIET_S if last_arrival - last_end < BACKLOG_S else 0.0


def slots_of(worker: Any) -> Slots:
    """The slots of the worker's pool."""
    if is_solo(worker.pool):
        return SoloSlots()
    if worker.process_task == worker._process_task_sem:
        return SemaphoreSlots(worker)
    return CountedSlots()
