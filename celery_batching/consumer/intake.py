"""From a message to a waiting item: Celery's own strategy, and a key after it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from .._celery_internals import default_strategy
from ..core.ceilings import Ceilings
from ..core.items import Item
from ..core.policy import Limits
from ..task import BatchTask

__all__ = ["key_of", "limits_of", "set_apart", "strategy", "to_item"]

#: Seconds in which those that come back together are shuffled.
SHUFFLED_S = 0.2

_celery_logger = logging.getLogger("celery.worker.strategy")


class _Suspect(NamedTuple):
    """The key of an item that runs alone."""

    task_name: str
    request_id: str


def strategy(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Callable[..., Any]:
    """Celery's default strategy, whose line about each received task goes to DEBUG."""
    handler: Callable[..., Any] = default_strategy(task, app, consumer, info=_celery_logger.debug, **kwargs)
    return handler


def to_item(request: Any, now: float, high_priority_first: bool) -> Item[Any]:
    """The waiting item of a request."""
    priority = request.delivery_info.get("priority") or 0
    return Item(request, key_of(request), now, -priority if high_priority_first else priority)


def key_of(request: Any) -> Hashable:
    """What must be equal for requests to share a batch.

    Their task, and the time limits that their messages carry, since one clock runs for the whole batch.
    """
    return (request.task.name, *request.time_limits)


def set_apart(item: Item[Any]) -> None:
    """Let an item that may have ended a worker run alone, and in no certain order.

    All that the dead worker held comes back in the order it had. The one that ends workers would
    always be the first again, and the others behind it would never run.
    """
    request = item.payload
    item.key = _Suspect(request.task.name, request.id)
    item.arrived += random.uniform(0, SHUFFLED_S)  # noqa: S311 - nobody is harmed who guesses it


def limits_of(key: Hashable, app: Any, ceilings: Ceilings) -> Limits:
    """What bounds the batches of a key."""
    options = task_of(key, app).batch_options
    if isinstance(key, _Suspect):
        return Limits(options.max_batch_size + 1, SHUFFLED_S)  # never full: the others shall come first
    return Limits(ceilings.cap(key, options.max_batch_size), options.max_wait)


def task_of(key: Hashable, app: Any) -> BatchTask:
    """The task whose items have this key, as ``key_of`` made it."""
    task: BatchTask = app.tasks[key[0]]  # type: ignore[index]
    return task
