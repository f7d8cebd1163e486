"""Items that ran out of time, on their way to a job of their own: their tracers wait here, past their prologue.

Only in the main thread of a prefork process: elsewhere nothing runs out of time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.items import Reason
from .item import TracedItem
from .messages import BatchPayload

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["park", "resumed_or_new"]

_parked: dict[str, TracedItem] = {}


def park(item: TracedItem) -> None:
    """Let the item wait at its body for the next job of this process."""
    _parked[item.id] = item


def resumed_or_new(task: BatchTask, payload: BatchPayload) -> list[TracedItem]:
    """The items of a batch; those of a part go on where they wait here.

    Before any other batch those that wait are ended: they were revoked meanwhile, or another
    process has them.
    """
    while _parked and payload.reason != Reason.SPLIT:
        _parked.popitem()[1].abandon()
    return [_parked.pop(item.id) if item.id in _parked else TracedItem(task, item, payload) for item in payload.items]
