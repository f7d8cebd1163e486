"""The door to names of Celery and kombu that are not public, for a process that only calls.

The other door leads to the worker, which such a process need not load. Checked on Celery 5.6.3 and
5.7.0 with kombu 5.7.0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import celery
import kombu
from celery import _state, result, signals
from celery.app.routes import MapRoute
from celery.backends.redis import RedisBackend
from celery.utils.saferepr import saferepr
from kombu import Producer
from kombu.utils.compat import detect_environment

__all__ = [
    "Settings",
    "StockResult",
    "are_stock",
    "assert_will_not_block",
    "detect_environment",
    "has_own_backend",
    "has_stock_results",
    "is_listened_to",
    "is_plain_redis_backend",
    "is_told_when_sent",
    "is_within_task",
    "makers_of",
    "routes_alike",
    "showing",
    "spare_subscription",
]

#: ``AsyncResult``, with names that have no types.
StockResult: Any = result.AsyncResult

#: The stack behind ``celery.current_task``.
task_stack: Any = _state._task_stack  # type: ignore[attr-defined]

#: Where their code lies.
_STOCK_FOLDERS = tuple(f"{Path(str(package.__file__)).parent}/" for package in (celery, kombu))

#: What Celery's saferepr shows as Python's own does.
_NUMBERS = (int, float, bool, type(None))
_FEW, _SHORT = 8, 100

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

#: Settings that Celery reads for each call; others it has read once.
_READ_FOR_EACH = ("task_always_eager", "task_send_sent_event", "task_repr_maxlevels", "task_default_queue")


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


def makers_of(task: Any, by_celery: Any, producer: Any) -> tuple[Any, ...]:
    """All that has a hand in making the message of a call; equal for as long as nothing is replaced.

    Args:
        task: it is called.
        by_celery: Celery's ``apply_async`` of the task.
        producer: it publishes.
    """
    app, channel = task.app, producer.channel
    amqp = app.amqp
    made = vars(amqp)  # once and for all; to ask for each takes ten times as long
    return (
        by_celery,
        task.shadow_name,
        task._get_exec_options,
        task.AsyncResult,
        app.send_task,
        app.producer_or_acquire,
        made.get("create_task_message"),
        made.get("send_task_message"),
        getattr(made.get("router"), "route", None),
        made.get("queues"),
        Producer.publish,
        Producer._publish,
        Producer._prepare,
        Producer._delivery_details,
        channel.prepare_message,
        channel.basic_publish,
        channel.encode_body,
        channel.typeof,
        # From here on what they read.
        task.name,
        task._backend,
        task._exec_options,
        task.soft_time_limit,
        task.time_limit,
        amqp.argsrepr_maxsize,
        amqp.kwargsrepr_maxsize,
    )


def are_stock(makers: tuple[Any, ...]) -> bool:
    """Whether the functions among them are Celery's and kombu's own, and not wrapped."""
    return all(_is_stock(maker) for maker in makers if callable(maker))


def _is_stock(maker: Any) -> bool:
    function = getattr(maker, "__func__", maker)
    # Wrappers may pretend to be what they wrap in all but their type.
    return type(function) is FunctionType and function.__code__.co_filename.startswith(_STOCK_FOLDERS)


def routes_alike(app: Any) -> bool:
    """Whether the router sends all calls of a task with the same options to the same queue."""
    return all(type(route) is MapRoute for route in app.amqp.router.routes)


def showing(app: Any) -> tuple[Callable[[Any], str], Callable[[Any], str]]:
    """What makes ``argsrepr`` and ``kwargsrepr`` of a message."""
    levels = {} if "task_repr_maxlevels" not in app.conf else {"maxlevels": app.conf.task_repr_maxlevels}
    return (
        partial(shown, maxlen=app.amqp.argsrepr_maxsize, **levels),
        partial(shown, maxlen=app.amqp.kwargsrepr_maxsize, **levels),
    )


def shown(value: Any, maxlen: int, **levels: Any) -> str:
    """Celery's ``saferepr``, in less steps for a few numbers and plain texts."""
    if type(value) is tuple and len(value) <= _FEW and all(_is_plain(one) for one in value):
        text = repr(value)
        if len(text) < maxlen:
            return text
    shown_by_celery: str = saferepr(value, maxlen, **levels)
    return shown_by_celery


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is not str:
        return kind in _NUMBERS
    return len(value) <= _SHORT and value.isprintable() and "'" not in value and "\\" not in value


class Settings:
    """The settings that Celery reads for each call, as they are now.

    Args:
        conf: the app's; to read one of them takes Celery longer than all that this does.
    """

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        self._read = _read(conf)
        # All but the defaults, where nobody changes anything; views of a module or an object are read.
        self._maps = list(conf.maps)
        self._copies = None
        if all(type(one) is dict for one in self._maps):
            self._copies = [dict(one) for one in self._maps[:-1]]

    def unchanged(self, conf: Any) -> bool:
        """Whether they are the same now."""
        if self._copies is None:
            return bool(self._read == _read(conf))
        return conf is self._conf and conf.maps == self._maps and self._copies == self._maps[:-1]


def _read(conf: Any) -> list[Any]:
    return [conf.get(name) for name in _READ_FOR_EACH]
