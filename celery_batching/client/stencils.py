"""The stencils of an app's calls, and when one may be used: where Celery would make the same message but for its holes."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

from ..transport.publishing import Put
from ._celery import Settings, are_stock, is_listened_to, is_within_task, makers_of, routes_alike, showing
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


class Stencils:
    """Stencils by task and options.

    Args:
        app: the Celery app.
        producer: it publishes the messages that stencils are cut from.
    """

    def __init__(self, app: Any, producer: Any) -> None:
        self._app = app
        self._producer = producer
        self._settings: Settings | None = None
        self._made: dict[Hashable, tuple[tuple[Any, ...], Stencil | None]] = {}

    def find(self, call: Call) -> Stencil | None:
        """The one for a call; None where Celery has to make its message."""
        found = self._made.get(_key_of(call))
        if found is None or is_within_task() or is_listened_to() or not _has_plain_arguments(call):
            return None
        if self._settings is None or not self._settings.unchanged(self._app.conf):
            self._made.clear()
            return None
        makers, stencil = found
        return stencil if makers == makers_of(call.task, call.by_celery, self._producer) else None

    def cut(self, call: Call, task_id: str, put: Put) -> None:
        """Keep one for calls like this one, which Celery has sent."""
        key = _key_of(call)
        if key is None or is_within_task() or is_listened_to() or not _has_plain_arguments(call):
            return
        makers = makers_of(call.task, call.by_celery, self._producer)
        if not self._made:
            self._settings = Settings(self._app.conf)
        if len(self._made) >= MOST:
            self._made.clear()
        self._made[key] = makers, self._new(call, makers, task_id, put)

    def _new(self, call: Call, makers: tuple[Any, ...], task_id: str, put: Put) -> Stencil | None:
        if not are_stock(makers) or not routes_alike(self._app):
            return None
        try:
            stencil = Stencil(put.key, put.message, showing(self._app), self._producer.channel)
            return stencil if stencil.makes(put.message, task_id, call.args or (), call.kwargs or {}) else None
        except Exception as exc:  # whatever is strange about it, Celery makes such messages
            logger.debug("No stencil for calls of %s: %r", call.task.name, exc)
            return None


def _key_of(call: Call) -> Hashable | None:
    """Equal for calls whose messages are made alike."""
    ignores = call.task.ignore_result
    if not call.options:
        return call.task, ignores
    if not all(type(value) in _STEADY.get(name, ()) for name, value in call.options.items()):
        return None
    # 1, 1.0 and True are equal, and no messages of them are.
    options = [(name, type(value), value) for name, value in sorted(call.options.items())]
    return call.task, ignores, *options


def _has_plain_arguments(call: Call) -> bool:
    """Whether they are what Celery does not refuse."""
    return type(call.args) in {tuple, list, type(None)} and type(call.kwargs) in {dict, type(None)}
