"""The stencils of an app's calls, and when one is used: where Celery would make the same message, but for its holes."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Circumstances(NamedTuple):
    """What the message of a call depends on, beside the call."""

    settings: Settings
    makers: tuple[Any, ...]


_SEQUENCES = (tuple, list, type(None))
_MAPPINGS = (dict, type(None))


@dataclass
class _Kept:
    """What is known of the messages of equal calls: ``stencil`` is None where there can be none, and ``sure``
    when two messages have made the same.
    """

    circumstances: Circumstances
    stencil: Stencil | None
    sure: bool = False


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
        return kept.stencil if kept.circumstances == self._circumstances(call) else None

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
        if kept is None or kept.circumstances != before:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[key] = _Kept(before, self._cut(call, before, task_id, put))
        elif kept.stencil is not None:
            new = self._cut(call, before, task_id, put)
            kept.sure = new is not None and new.is_like(kept.stencil)
            kept.stencil = kept.stencil if kept.sure else None

    def _circumstances(self, call: Call) -> Circumstances:
        if not self._settings.unchanged(self._app.conf):
            self._settings = Settings(self._app.conf)
        return Circumstances(self._settings, makers_of(call.task, call.by_celery, self._producer))

    def _cut(self, call: Call, circumstances: Circumstances, task_id: str, put: Put) -> Stencil | None:
        if not are_stock(circumstances.makers) or not routes_alike(self._app):
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


def _is_usual(call: Call) -> bool:
    """Whether nobody is told of its message, no task makes it, and its arguments are what Celery does not refuse."""
    plain = type(call.args) in _SEQUENCES and type(call.kwargs) in _MAPPINGS
    return plain and not is_listened_to() and not is_within_task()
