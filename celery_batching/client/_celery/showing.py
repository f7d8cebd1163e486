"""What a message shows of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from celery.utils.saferepr import saferepr

__all__ = ["showing", "shown"]

#: What Celery's saferepr shows as Python's own does.
_NUMBERS = (int, float, bool, type(None))
_FEW, _SHORT = 8, 100


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
