"""The parts of batches that were cut short, in the order in which they run again: before anything that waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from ..core.parts import Part, Search
from .settle import give_up

__all__ = ["Reruns"]


class Reruns:
    """A stack of parts: the halves of a half run before the other half."""

    def __init__(self) -> None:
        self._parts: deque[Part[Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Sequence[Part[Any]]) -> None:
        """Run these next, in order."""
        self._parts.extendleft(reversed(parts))

    def pop(self) -> Part[Any] | None:
        """The part that runs next."""
        return self._parts.popleft() if self._parts else None

    def accuse(self, part: Part[Any] | None) -> None:
        """The first half was cleared: what ended the process lies in this one, which need not run whole."""
        if part is not None and part in self._parts and len(part.rows) > 1:
            position = self._parts.index(part)
            del self._parts[position]
            for half in reversed(part.halves()):
                self._parts.insert(position, half)

    def give_up(self, search: Search) -> list[Any]:
        """Fail whatever is left of a batch that has cost too many processes; what that was."""
        parts = [part for part in self._parts if part.search is search]
        for part in parts:
            self._parts.remove(part)
            give_up(part.rows, search)
        return [request for part in parts for request in part.rows]

    def clear(self) -> None:
        """Forget all parts."""
        self._parts.clear()
