"""Messages that are no calls: refused before anything stumbles over them, and their callers told.

A stock worker ends on a body that is JSON but no call, and leaves the caller of a message it
cannot read waiting. Here the item fails alone, for batch tasks and for others on the worker.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from celery.exceptions import InvalidTaskError
from kombu.exceptions import ContentDisallowed, DecodeError

from .._celery_internals import Bunch, shown

__all__ = ["refuse_bad_messages"]

logger = logging.getLogger(__name__)

#: Characters of a bad value that its error shows.
SHOWN_CHARACTERS = 200

#: What Celery's consumer expects of a message it cannot read; anything else would end the worker.
_EXPECTED = (InvalidTaskError, ContentDisallowed, DecodeError)

_NO_LIMITS = [None, None]
_NO_STAMPS: tuple[Any, ...] = (None, {})


def refuse_bad_messages(consumer: Any) -> None:
    """Check every message before its task's strategy, and let Celery's refusals reach the caller."""
    update_strategies = consumer.update_strategies
    on_decode_error, on_invalid_task = consumer.on_decode_error, consumer.on_invalid_task

    def update_and_guard() -> None:
        update_strategies()
        for name, handler in consumer.strategies.items():
            consumer.strategies[name] = _guarded(handler)

    def tell_and_ack(message: Any, exc: Exception) -> None:
        _tell_caller(message, consumer, exc)
        on_decode_error(message, exc)

    def tell_and_reject(body: Any, message: Any, exc: Exception) -> None:
        _tell_caller(message, consumer, exc)
        on_invalid_task(body, message, exc)

    consumer.strategies = _Strategies(consumer.strategies)
    consumer.update_strategies = update_and_guard
    consumer.on_decode_error = tell_and_ack
    consumer.on_invalid_task = tell_and_reject


class _Strategies(dict[str, Any]):
    """Strategies by task name, where a name that is no text is an unknown one."""

    def __getitem__(self, name: Any) -> Any:
        try:
            return super().__getitem__(name)
        except TypeError as exc:  # not hashable
            raise KeyError(repr(name)) from exc


def _guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def guarded(message: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        _check(message, body)
        return handler(message, body, *args, **kwargs)

    return guarded


def _check(message: Any, body: Any) -> None:
    """Refuse what Celery's request, or its pool, would stumble over.

    Raises:
        InvalidTaskError: says what came and what was wanted.
        DecodeError, ContentDisallowed: by kombu, while it decodes the body.
    """
    payload = _payload(message) if body is None else body
    if body is None and _is_usual(payload, message.headers):
        return
    headers: Mapping[str, Any] = message.headers or {}
    if isinstance(payload, dict):  # protocol 1: everything is in the body
        is_call = body is not None or "args" in payload
        is_call = is_call and isinstance(payload.get("args", ()), (list, tuple))
        is_call = is_call and isinstance(payload.get("kwargs", {}), dict)
        headers = {**payload, **headers}
    else:
        is_call = _is_call(payload)
    _require(is_call, "body", payload, "[args, kwargs, embed]")
    _require(isinstance(headers.get("id"), str), "id", headers.get("id"), "text")
    _require(_are_limits(headers.get("timelimit")), "timelimit", headers.get("timelimit"), "[hard, soft] in seconds")
    stamped, stamps = headers.get("stamped_headers"), headers.get("stamps")
    _require(_are_names(stamped), "stamped_headers", stamped, "a list of names")
    _require(isinstance(stamps, (dict, type(None))), "stamps", stamps, "a mapping")


def _is_usual(payload: Any, headers: Any) -> bool:
    """Whether the message is as Celery's own clients make it: nearly all are, and need no look at each part."""
    if type(payload) is not list or len(payload) != 3:  # noqa: PLR2004  as the message protocol has it
        return False
    args, kwargs, embed = payload
    return (
        type(args) is list
        and type(kwargs) is dict
        and type(embed) is dict
        and type(headers.get("id")) is str
        and headers.get("timelimit") == _NO_LIMITS
        and headers.get("stamped_headers") is None
        and headers.get("stamps") in _NO_STAMPS
    )


def _require(holds: bool, what: str, value: Any, wanted: str) -> None:
    if not holds:
        got = shown(value, SHOWN_CHARACTERS)
        raise InvalidTaskError(f"the message is no call: its {what} must be {wanted}, got {got}")


def _payload(message: Any) -> Any:
    try:
        return message.payload
    except _EXPECTED:
        raise
    except Exception as exc:  # such as LookupError for an unknown encoding
        raise InvalidTaskError(f"the message cannot be read: {exc!r}") from exc


def _is_call(payload: Any) -> bool:
    if not isinstance(payload, (list, tuple)) or len(payload) != 3:  # noqa: PLR2004  as the message protocol has it
        return False
    args, kwargs, embed = payload
    return isinstance(args, (list, tuple)) and isinstance(kwargs, dict) and isinstance(embed, (dict, type(None)))


def _are_limits(limits: Any) -> bool:
    if not limits:
        return True
    numbers = (int, float, type(None))
    return (
        isinstance(limits, (list, tuple))
        and len(limits) == 2  # noqa: PLR2004  a hard and a soft one
        and all(isinstance(limit, numbers) and not isinstance(limit, bool) for limit in limits)
    )


def _are_names(names: Any) -> bool:
    return names is None or (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names))


def _tell_caller(message: Any, consumer: Any, exc: Exception) -> None:
    """Store the failure of a message that cannot be read, where it says whose it is."""
    headers = message.headers or {}
    name, task_id = headers.get("task"), headers.get("id")
    if not isinstance(name, str) or name not in consumer.app.tasks or not isinstance(task_id, str):
        return
    task = consumer.app.tasks[name]
    request = Bunch(  # as Celery does for a task it does not know: the embedded part cannot be read
        name=task.name,
        chord=None,
        root_id=headers.get("root_id"),
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
