"""From a message to a waiting item: Celery's own strategy, and a key after it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any

from .._celery_internals import default_strategy
from ..core.items import Item
from ..task import BatchTask

__all__ = ["key_of", "strategy", "task_of", "to_item"]

_celery_logger = logging.getLogger("celery.worker.strategy")


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


def task_of(key: Hashable, app: Any) -> BatchTask:
    """The task whose items have this key, as ``key_of`` made it."""
    task: BatchTask = app.tasks[key[0]]  # type: ignore[index]
    return task
