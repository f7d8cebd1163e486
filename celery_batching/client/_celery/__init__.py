"""The door to names of Celery and kombu that are not public, for a process that only calls.

The other door leads to the worker, which such a process need not load. Checked on Celery 5.6.3 and
5.7.0 with kombu 5.7.0.
"""

from __future__ import annotations

from typing import Any

import celery
from celery import _state, result, signals
from celery.backends.redis import RedisBackend

from .makers import Makers, has_stock_amqp, makers_of, steady_routes
from .settings import Settings
from .showing import showing

__all__ = [
    "Makers",
    "Settings",
    "StockResult",
    "assert_will_not_block",
    "has_stock_amqp",
    "has_stock_results",
    "is_listened_to",
    "is_plain_redis_backend",
    "is_told_when_sent",
    "is_within_task",
    "makers_of",
    "showing",
    "spare_subscription",
    "steady_routes",
]

#: ``AsyncResult``, with names that have no types.
StockResult: Any = result.AsyncResult

#: The stack behind ``celery.current_task``.
task_stack: Any = _state._task_stack  # type: ignore[attr-defined]

assert_will_not_block: Any = result.assert_will_not_block  # type: ignore[attr-defined]


class _Sparing:
    """Stands before the class of a Redis backend: does not subscribe to results that are told otherwise."""

    sparing: type

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        return None if isinstance(producer, self.sparing) else super().on_task_call(producer, task_id)  # type: ignore[misc]


class _SparingRedis(_Sparing, RedisBackend):
    """For plain Redis."""


def has_stock_results(app: Any) -> bool:
    """Whether the app's results are Celery's own."""
    return type(app).AsyncResult is celery.Celery.AsyncResult and app.AsyncResult.__bases__ == (StockResult,)


def is_plain_redis_backend(backend: Any) -> bool:
    """Whether it is Celery's own for one Redis server."""
    return type(backend) in {RedisBackend, _SparingRedis}


def spare_subscription(backend: Any, producer_class: type) -> None:
    """Let the backend not subscribe to the results of what is sent by producers of this class.

    A backend is a thread's own, so this comes with the first call of each.
    """
    if type(backend) is RedisBackend:
        sparing: Any = backend
        sparing.sparing = producer_class
        sparing.__class__ = _SparingRedis


#: Where others can see, or change, a message before it leaves.
_LISTENED = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)


def is_within_task() -> bool:
    """Whether this thread runs a task, so that its calls may be those of a parent."""
    return bool(task_stack.stack)


def is_listened_to() -> bool:
    """Whether somebody is told of each message."""
    return any(signal.receivers for signal in _LISTENED)


def is_told_when_sent(app: Any) -> bool:
    """Whether somebody is told of each message when it has left."""
    told = signals.after_task_publish.receivers or signals.task_sent.receivers
    return bool(told or app.conf.task_send_sent_event)
