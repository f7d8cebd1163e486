"""The body of one call, which Celery's tracer or a direct caller runs: its share of a batch.

Inside the tracer of an item the body waits for the batch. Anywhere else (a direct call,
``apply``, eager mode) it is a batch of one.
"""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any

from celery.exceptions import Retry
from kombu.utils.uuid import uuid

from .._celery_internals import Context, add_autoretry_behaviour, task_stack
from ..batch import RetryEntry
from ..core.items import Reason
from ..core.outcomes import Outcome, Raised, Returned
from .item import current_item
from .model import ModelRun
from .plain import to_plain
from .setup import ensure_setup

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["ItemBody"]

#: Result serializers that cannot take arrays; a serializer of the user's own gets them as they are.
_PLAIN_SERIALIZERS = {"json", "yaml", "msgpack"}


class ItemBody:
    """Runs one call of a task, with the automatic retries Celery puts around a ``run``.

    Celery wraps ``run`` of what it is given and reads the rest of the task's retry options there,
    so this stands in for the task, whose own ``run`` takes a whole batch and must stay as it is.
    """

    def __init__(self, task: BatchTask) -> None:
        self._task = task
        add_autoretry_behaviour(self)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_run":
            raise AttributeError(name)  # Celery's mark of a wrapped run: this one is not wrapped yet
        return getattr(self._task, name)

    def __delattr__(self, name: str) -> None:
        delattr(self._task, name)

    @functools.cached_property
    def _wants_plain(self) -> bool:
        return self._task.app.conf.result_serializer in _PLAIN_SERIALIZERS

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """A direct call, outside of any tracer: with a request of its own, as Celery's ``Task.__call__``."""
        task_stack.push(self._task)
        self._task.push_request(args=args, kwargs=kwargs)
        try:
            return self.run(*args, **kwargs)
        finally:
            self._task.pop_request()
            task_stack.pop()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The call's result, or its exception; an item's arguments in, not columns."""
        task = self._task
        row = task.columns.row(args, kwargs)
        item = current_item.get()
        if item is not None and item.at_body_of(task):
            return self.stored(_unwrap(task, item.await_outcome(row)))
        ensure_setup(task)
        lone = _LoneCall(row, task.request_stack.top)
        return _unwrap(task, ModelRun(task, uuid(), Reason.IDLE.value).outcomes([lone])[0])

    def stored(self, value: Any) -> Any:
        """The result as the tracer gives it to the result backend."""
        return to_plain(value) if self._wants_plain else value


class _LoneCall:
    """A call outside a worker's batch, as the one row of its own."""

    def __init__(self, row: dict[str, Any], request: Context) -> None:
        self.row: dict[str, Any] | None = row
        self.request: Context | None = request
        self.run_s = 0.0


def _unwrap(task: BatchTask, outcome: Outcome) -> Any:
    if isinstance(outcome, Returned):
        return outcome.value
    if not isinstance(outcome, Raised):
        raise TypeError("an item that must run again has no outcome yet")
    error = outcome.error
    if isinstance(error, Retry) and getattr(error, "sig", None) is None:
        raise _retry(task, error)
    raise error.with_traceback(outcome.traceback)


def _retry(task: BatchTask, entry: Retry) -> BaseException:
    """Send the item's own new message, with its own count; what Celery then wants raised."""
    options: dict[str, Any] = dict(entry.options) if isinstance(entry, RetryEntry) else {}
    options["exc"] = entry.cause if isinstance(entry, RetryEntry) else entry.exc
    options["eta" if isinstance(entry.when, datetime.datetime) else "countdown"] = entry.when
    error: BaseException = task.retry(**options)
    return error
