"""The stencils of an app's calls, and when one is used: where Celery would make the same message, but for its holes."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..transport.publishing import Put
from ._celery import (
    Makers,
    Settings,
    has_stock_amqp,
    is_listened_to,
    is_within_task,
    makers_of,
    showing,
    steady_routes,
)
from .call import Call
from .stencil import Stencil

__all__ = ["Stencils"]

logger = logging.getLogger(__name__)

#: The most stencils; calls differ in few options, and where they do not, stencils are of no use.
MOST = 1000

#: Options that make the same of each message, and the types of their values that one can tell apart.
_STEADY = {
    "ignore_result": (bool,),
    "priority": (int,),
    "queue": (str,),
    "retry": (bool,),
    "serializer": (str,),
    "soft_time_limit": (int, float),
    "time_limit": (int, float),
}


class Circumstances(NamedTuple):
    """What the message of a call depends on, beside the call."""

    settings: Settings
    makers: Makers


_SEQUENCES = (tuple, list, type(None))
_MAPPINGS = (dict, type(None))


@dataclass
class _Kept:
    """What is known of the messages of calls that are alike.

    Attributes:
        task: by its identity they are known.
        circumstances: under which it is true.
        routes: what the router's maps say of the task, as it is kept there and as it was.
        stencil: None where there can be none.
        sure: whether a second message has made the same stencil.
    """

    task: Any
    circumstances: Circumstances
    routes: list[tuple[Any, Any]]
    stencil: Stencil | None
    sure: bool = False

    def holds(self, circumstances: Circumstances) -> bool:
        """Whether it is true now."""
        return self.circumstances == circumstances and all(now == then for now, then in self.routes)


class Stencils:
    """Stencils by task and options.

    Args:
        app: the Celery app.
        producer: it publishes the messages that stencils are cut from.
    """

    def __init__(self, app: Any, producer: Any) -> None:
        self._app = app
        self._producer = producer
        self._settings = Settings(app.conf)
        self._kept: dict[Hashable, _Kept] = {}

    def find(self, call: Call) -> Stencil | None:
        """The one for a call; None where Celery has to make its message."""
        kept = self._kept.get(_key_of(call))
        if kept is None or not kept.sure or not _is_usual(call):
            return None
        return kept.stencil if kept.holds(self._circumstances(call)) else None

    def watch(self, call: Call) -> Circumstances | None:
        """Before Celery makes the message of a call: what ``learn`` has to know; None where it learns nothing."""
        key = _key_of(call)
        return self._circumstances(call) if key is not None and _is_usual(call) else None

    def learn(self, call: Call, before: Circumstances, task_id: str, put: Put) -> None:
        """Learn from a message.

        Args:
            call: it was sent.
            before: what ``watch`` gave.
            task_id: of the call.
            put: its message.
        """
        if before != self.watch(call):
            return
        key = _key_of(call)
        kept = self._kept.get(key)
        if kept is None or not kept.holds(before):
            if len(self._kept) >= MOST:
                self._kept.clear()
            routes = steady_routes(self._app, call.task.name)
            new = None if routes is None else self._cut(call, before, task_id, put)
            self._kept[key] = _Kept(call.task, before, routes or [], new)
        elif kept.stencil is not None:
            new = self._cut(call, before, task_id, put)
            kept.sure = new is not None and new.is_like(kept.stencil)
            kept.stencil = kept.stencil if kept.sure else None

    def _circumstances(self, call: Call) -> Circumstances:
        if not self._settings.unchanged(self._app.conf):
            self._settings = Settings(self._app.conf)
        return Circumstances(self._settings, makers_of(call.task, call.by_celery, self._producer))

    def _cut(self, call: Call, circumstances: Circumstances, task_id: str, put: Put) -> Stencil | None:
        stock = circumstances.makers.are_stock() and has_stock_amqp(self._app)
        if not stock or self._app.conf.task_send_sent_event:
            return None
        try:
            stencil = Stencil(put, showing(self._app), self._producer.channel)
            return stencil if stencil.makes(put.message, task_id, call.args or (), call.kwargs or {}) else None
        except Exception as exc:  # whatever is strange about it, Celery makes such messages
            logger.debug("No stencil for calls of %s: %r", call.task.name, exc)
            return None


def _key_of(call: Call) -> Hashable | None:
    """Equal for calls whose messages are made alike; the task need not be hashable."""
    kind = id(call.task), call.task.ignore_result
    if not call.options:
        return kind
    if not all(type(value) in _STEADY.get(name, ()) for name, value in call.options.items()):
        return None
    # 1, 1.0 and True are equal, and no messages of them are.
    return *kind, *((name, repr(value)) for name, value in sorted(call.options.items()))


def _is_usual(call: Call) -> bool:
    """Whether nobody is told of its message, no task makes it, and its arguments are what Celery does not refuse."""
    plain = type(call.args) in _SEQUENCES and type(call.kwargs) in _MAPPINGS
    return plain and not is_listened_to() and not is_within_task()
