"""Items that ran out of time, on their way to a job of their own: their tracers wait here, past their prologue.

Only in a prefork process: elsewhere nothing runs out of time. None wait while the clerk gets a batch
ready: it does so behind a batch without time limits alone, whose start has ended those that waited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.items import Reason
from .direct import DirectItem, new_items
from .item import TracedItem
from .messages import BatchPayload

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["park", "resumed_or_new"]

Item = TracedItem | DirectItem

_parked: dict[str, Item] = {}


def park(item: Item) -> None:
    """Let the item wait at its body for the next job of this process."""
    _parked[item.id] = item


def resumed_or_new(task: BatchTask, payload: BatchPayload) -> list[Item]:
    """The items of a batch; those of a part go on where they wait here.

    Before any other batch those that wait are ended: they were revoked meanwhile, or another
    process has them.
    """
    while _parked and payload.reason != Reason.SPLIT:
        _parked.popitem()[1].abandon()
    new = iter(new_items(task, [item for item in payload.items if item.id not in _parked], payload))
    return [_parked.pop(item.id) if item.id in _parked else next(new) for item in payload.items]
