"""Slots: room for one batch in the pool, and how to get one from the pool in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .._celery_internals import acquire_slot, has_semaphore, is_solo, release_slot

__all__ = ["Slots", "slots_of"]


class Slots(Protocol):
    """Room for batches. A slot is free again when the batch that holds it ends."""

    def claim(self, use: Callable[[], None]) -> None:
        """Call ``use`` as soon as a slot is free, which may be at once."""

    def give_back(self) -> None:
        """Return a claimed slot without having used it."""

    @property
    def block_the_loop(self) -> bool:
        """Whether no message is read while a batch runs, so that the backlog must be read before the next."""


class SemaphoreSlots:
    """Prefork on the event loop: the worker's semaphore, shared with tasks that are not batched.

    The pool itself releases it when a job ends.
    """

    block_the_loop = False

    def __init__(self, worker: Any) -> None:
        self._worker = worker

    def claim(self, use: Callable[[], None]) -> None:
        acquire_slot(self._worker, use)

    def give_back(self) -> None:
        release_slot(self._worker)


class CountedSlots:
    """Pools without a semaphore: the batcher counts its running batches, that is all."""

    def __init__(self, block_the_loop: bool) -> None:
        self.block_the_loop = block_the_loop

    def claim(self, use: Callable[[], None]) -> None:
        use()

    def give_back(self) -> None:
        pass


def slots_of(worker: Any) -> Slots:
    """The slots of the worker's pool."""
    if has_semaphore(worker):
        return SemaphoreSlots(worker)
    return CountedSlots(block_the_loop=is_solo(worker.pool))
