"""The door to names of Celery and kombu that are not public, for a process that only calls.

The other door leads to the worker, which such a process need not load. Checked on Celery 5.6.3 and
5.7.0 with kombu 5.7.0.
"""

from __future__ import annotations

from typing import Any

from celery import result
from celery.backends.redis import RedisBackend
from kombu.utils.compat import detect_environment

__all__ = [
    "StockResult",
    "assert_will_not_block",
    "detect_environment",
    "has_own_backend",
    "is_plain_redis_backend",
    "spare_subscription",
]

#: ``AsyncResult``, with names that have no types.
StockResult: Any = result.AsyncResult

assert_will_not_block: Any = result.assert_will_not_block  # type: ignore[attr-defined]


class _Sparing:
    """Stands before the class of a Redis backend: does not subscribe to results that are told otherwise."""

    sparing: type

    def on_task_call(self, producer: Any, task_id: str) -> Any:
        return None if isinstance(producer, self.sparing) else super().on_task_call(producer, task_id)  # type: ignore[misc]


class _SparingRedis(_Sparing, RedisBackend):
    """For plain Redis."""


def has_own_backend(task: Any) -> bool:
    """Whether the task stores its results elsewhere than its app does."""
    return task._backend is not None


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
