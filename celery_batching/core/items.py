"""Items, and the windows in which they wait: plain values that intake fills and dispatch empties."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Buffer", "Item", "Reason", "Window"]

PayloadT = TypeVar("PayloadT")

#: Seconds after which an item goes before any of a better priority, so that none starves.
AGE_BOUND_S = 5.0


class Reason(str, enum.Enum):
    """Why a batch left when it did: what the log line and the metrics show."""

    FULL = "full"
    """As many items as ``max_batch_size`` allows, unlike WAIT, which may leave with any number."""
    WAIT = "wait"
    """The oldest item had waited ``max_wait`` seconds."""
    IDLE = "idle"
    """A slot was free and ``max_wait`` is 0: there was nothing to wait for."""
    SPLIT = "split"
    """A part of a batch whose pool process was lost or ran out of time, run again by itself."""

    def __str__(self) -> str:
        return self.value


@dataclasses.dataclass(slots=True, eq=False)
class Item(Generic[PayloadT]):
    """One waiting call.

    Attributes:
        payload: what the caller of this module keeps with the item; never looked at here.
        key: what must be equal for items to share a batch.
        arrived: when the item entered the buffer, in seconds of a monotonic clock.
        priority: lower leaves first; equal ones leave in order of arrival.
    """

    payload: PayloadT
    key: Hashable
    arrived: float
    priority: int = 0


class Window(Generic[PayloadT]):
    """The waiting items of one key, by priority and, within one, by arrival."""

    def __init__(self) -> None:
        self._lines: dict[int, deque[Item[PayloadT]]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def oldest(self) -> float:
        """When the item that has waited longest arrived: the start of the window's clock."""
        return min(line[0].arrived for line in self._lines.values())

    def add(self, item: Item[PayloadT]) -> None:
        """Put the item behind the others of its priority."""
        self._lines.setdefault(item.priority, deque()).append(item)
        self._size += 1

    def pop(self, now: float) -> Item[PayloadT]:
        """The item that leaves next; the window must not be empty."""
        priority = self._next_priority(now)
        line = self._lines[priority]
        item = line.popleft()
        if not line:
            del self._lines[priority]
        self._size -= 1
        return item

    def _next_priority(self, now: float) -> int:
        eldest = min(self._lines, key=lambda priority: self._lines[priority][0].arrived)
        if now - self._lines[eldest][0].arrived >= AGE_BOUND_S:
            return eldest
        return min(self._lines)


class Buffer(Generic[PayloadT]):
    """All waiting items, a window for each key that has any: a key without items takes no memory."""

    def __init__(self) -> None:
        self._windows: dict[Hashable, Window[PayloadT]] = {}

    def __len__(self) -> int:
        return sum(len(window) for window in self._windows.values())

    @property
    def windows(self) -> dict[Hashable, Window[PayloadT]]:
        """The windows that hold items, by key."""
        return self._windows

    def add(self, item: Item[PayloadT]) -> None:
        """Put the item into the window of its key."""
        self._windows.setdefault(item.key, Window()).add(item)

    def pop(self, key: Hashable, now: float) -> Item[PayloadT] | None:
        """The next item of ``key``, or None when none waits."""
        window = self._windows.get(key)
        if window is None:
            return None
        item = window.pop(now)
        if not window:
            del self._windows[key]
        return item

    def clear(self) -> None:
        """Forget all items."""
        self._windows.clear()
