"""When a batch leaves: from the waiting windows and the time to a decision, which is a plain value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

from .items import Reason, Window

__all__ = ["Decision", "Flush", "Limits", "WaitUntil", "decide"]


class Limits(NamedTuple):
    """What bounds the batches of one key."""

    max_batch_size: int
    max_wait: float
    """Seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Flush:
    """Close a batch of at most ``size`` items of ``key`` now."""

    key: Hashable
    reason: Reason
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class WaitUntil:
    """No window may leave yet; the first of them may at ``time``, unless it fills up earlier."""

    time: float


Decision = Flush | WaitUntil | None


def decide(
    windows: Iterable[tuple[Hashable, Window[Any]]],
    limits: Callable[[Hashable], Limits],
    now: float,
) -> Decision:
    """Decide what to do with one free slot.

    Asked while a slot is free, or for a full batch that goes ahead: one that is closed earlier cannot
    take the items that arrive while the model runs. Of the windows that may leave, the one whose oldest item has
    waited longest goes first, so that no key starves another. None: nothing waits.
    """
    chosen: tuple[float, Flush] | None = None
    deadline: float | None = None
    for key, window in windows:
        options, oldest = limits(key), window.oldest
        reason = _reason_to_leave(len(window), oldest, options, now)
        if reason is None:
            due = oldest + options.max_wait
            deadline = due if deadline is None else min(deadline, due)
        elif chosen is None or oldest < chosen[0]:
            chosen = (oldest, Flush(key, reason, options.max_batch_size))
    if chosen is not None:
        return chosen[1]
    return None if deadline is None else WaitUntil(deadline)


def _reason_to_leave(size: int, oldest: float, options: Limits, now: float) -> Reason | None:
    if size >= options.max_batch_size:
        return Reason.FULL
    if options.max_wait == 0:
        return Reason.IDLE
    # Compared as the deadline is computed: `now - oldest >= max_wait` could be false at the
    # very moment the timer was set for, and the timer would be set for that moment again.
    if now >= oldest + options.max_wait:
        return Reason.WAIT
    return None
