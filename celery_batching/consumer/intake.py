"""From a message to a waiting item: Celery's own strategy, a check of the body before it, a key after it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable
from typing import Any

from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError

from .._celery_internals import Bunch, default_strategy
from ..core.items import Item
from ..task import BatchTask

__all__ = ["guard", "strategy", "task_of", "to_item"]

logger = logging.getLogger(__name__)

#: What Celery's consumer expects of a message it cannot read; anything else would end the worker.
_UNREADABLE = (InvalidTaskError, ContentDisallowed, DecodeError)
_celery_logger = logging.getLogger("celery.worker.strategy")


def strategy(task: Any, app: Any, consumer: Any, **kwargs: Any) -> Callable[..., Any]:
    """Celery's default strategy, whose line about each received task goes to DEBUG."""
    handler: Callable[..., Any] = default_strategy(task, app, consumer, info=_celery_logger.debug, **kwargs)
    return handler


def guard(handler: Callable[..., Any], task: Any, consumer: Any) -> Callable[..., Any]:
    """Put a check of the message before the handler of a task.

    A stock worker ends on a body that is JSON but no call, and leaves the caller of one that
    cannot be decoded waiting. Here that item fails and the worker goes on.
    """

    @functools.wraps(handler)
    def guarded(message: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _check_call(message, body)
            return handler(message, body, *args, **kwargs)
        except _UNREADABLE as exc:
            _fail_unreadable(message, task, consumer, exc)
            raise  # Celery's consumer logs and settles the message

    return guarded


def to_item(request: Any, now: float, high_priority_first: bool) -> Item[Any]:
    """The waiting item of a request.

    Items share a batch when they are of one task and their messages carry the same time limits,
    since one clock runs for the whole batch.

    Raises:
        InvalidTaskError: the message's time limits are no pair of numbers.
    """
    priority = request.delivery_info.get("priority") or 0
    key = (request.task.name, _limits(request.time_limits))
    return Item(request, key, now, -priority if high_priority_first else priority)


def task_of(key: Hashable, app: Any) -> BatchTask:
    """The task whose items have this key, as ``to_item`` made it."""
    task: BatchTask = app.tasks[key[0]]  # type: ignore[index]
    return task


def _limits(limits: Any) -> tuple[float | None, float | None]:
    if isinstance(limits, (list, tuple)) and len(limits) == 2:  # noqa: PLR2004  a hard and a soft one
        hard, soft = limits
        if all(limit is None or isinstance(limit, (int, float)) for limit in (hard, soft)):
            return hard, soft
    raise InvalidTaskError(f"the message's timelimit must be [hard, soft] in seconds or null; got {limits!r}")


def _check_call(message: Any, body: Any) -> None:
    payload = _payload(message) if body is None else body
    if isinstance(payload, dict):  # protocol 1: everything is in the body
        readable = "args" in payload
        task_id = payload.get("id", (message.headers or {}).get("id"))
    else:
        readable = (
            isinstance(payload, (list, tuple))
            and [type(part) for part in payload[1:2]] == [dict]
            and len(payload) == 3  # noqa: PLR2004  args, kwargs, embed
            and isinstance(payload[0], (list, tuple))
            and isinstance(payload[2], (dict, type(None)))
        )
        task_id = message.headers.get("id")
    if not readable:
        raise InvalidTaskError(f"the body is no call: wanted [args, kwargs, embed], got {type(payload).__name__}")
    if not isinstance(task_id, str):
        raise InvalidTaskError(f"the message's id must be text; got {task_id!r}")


def _payload(message: Any) -> Any:
    try:
        return message.payload
    except _UNREADABLE:
        raise
    except Exception as exc:  # such as LookupError for an unknown encoding
        raise InvalidTaskError(f"the message cannot be read: {exc!r}") from exc


def _fail_unreadable(message: Any, task: Any, consumer: Any, exc: Exception) -> None:
    task_id = (message.headers or {}).get("id")
    if not isinstance(task_id, str):
        return  # nobody to tell
    request = Bunch(  # as Celery does for a task it does not know: the embedded part cannot be read
        name=task.name,
        chord=None,
        root_id=message.headers.get("root_id"),
        correlation_id=message.properties.get("correlation_id"),
        reply_to=message.properties.get("reply_to"),
        errbacks=None,
    )
    try:
        task.backend.mark_as_failure(task_id, exc, request=request)
    except Exception:
        logger.exception("Cannot store the failure of %s[%s]", task.name, task_id)
    if consumer.event_dispatcher:
        consumer.event_dispatcher.send("task-failed", uuid=task_id, exception=repr(exc))
