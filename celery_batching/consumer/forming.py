"""The next batch, closed at the moment it leaves: parts that run again first, then what the policy says."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kombu.utils.uuid import uuid

from ..core.ceilings import Ceilings
from ..core.items import Buffer, Item, Reason
from ..core.parts import Part
from ..core.policy import Decision, Flush, Limits, decide
from .intake import limits_of
from .reruns import Reruns
from .settle import RunningBatch

__all__ = ["Former"]


class Former:
    """Forms batches of what waits.

    Args:
        app: Celery's app, whose settings bound the batches.
        buffer: the waiting items, in windows.
        reruns: the parts of batches that were cut short.
        ceilings: what fits into memory.
        release: called with the requests that are left out, since they were revoked or have expired.
    """

    def __init__(
        self,
        app: Any,
        buffer: Buffer[Any],
        reruns: Reruns,
        ceilings: Ceilings,
        release: Callable[[Sequence[Any]], None],
    ) -> None:
        self._app = app
        self._buffer = buffer
        self._reruns = reruns
        self._ceilings = ceilings
        self._release = release
        self._sizes: dict[Hashable, int] = {}

    def decide(self, now: float) -> Decision:
        """What the policy says of the waiting items."""
        return decide(self._buffer.windows.items(), self._limits, now)

    def begin_burst(self) -> None:
        """From here on to its end, what limits the batches of a key is looked up once."""
        self._sizes.clear()

    def has_filled(self, key: Hashable) -> bool:
        """Whether the item that came last in a burst has made one more batch of this key full."""
        window = self._buffer.windows.get(key)
        if window is None:
            return False
        if key not in self._sizes:
            self._sizes[key] = self._limits(key).max_batch_size
        return len(window) % self._sizes[key] == 0

    def next_batch(self, *, only_full: bool) -> RunningBatch | None:
        """The batch that leaves now; None: nothing may leave, or nothing that was full when that was decided."""
        while (part := self._reruns.pop()) is not None:
            part.rows = [request for request in part.rows if not self._leaves(request)]
            if part.rows:  # else remote control ended all of them meanwhile
                return RunningBatch(uuid(), part.rows[0].task, part, Reason.SPLIT, 0.0)
        while True:
            now = time.monotonic()
            decision = self.decide(now)
            if not isinstance(decision, Flush) or (only_full and decision.reason is not Reason.FULL):
                return None
            items = self._take(decision.key, decision.size, now)
            if items:  # else all of them were revoked or expired, and the next window may go
                part = Part.whole([item.payload for item in items])
                waited_s = max(now - min(item.arrived for item in items), 0.0)
                return RunningBatch(uuid(), part.rows[0].task, part, decision.reason, waited_s)

    def _take(self, key: Hashable, size: int, now: float) -> list[Item[Any]]:
        """Up to ``size`` items, those left out that were revoked or have expired while they waited."""
        items: list[Item[Any]] = []
        while len(items) < size and (item := self._buffer.pop(key, now)) is not None:
            if not self._leaves(item.payload):
                items.append(item)
        return items

    def _leaves(self, request: Any) -> bool:
        """Whether the item is left out, since it was revoked or has expired."""
        leaves: bool = request.leaves()
        if leaves:
            self._release([request])
        return leaves

    def _limits(self, key: Hashable) -> Limits:
        return limits_of(key, self._app, self._ceilings)
