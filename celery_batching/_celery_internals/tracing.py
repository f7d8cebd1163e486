"""Celery's tracer of one task, and what it leaves in a pool process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import celery
from celery import _state
from celery.app import trace
from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.utils import threads as celery_threads

if TYPE_CHECKING:
    from ..pool.messages import BatchPayload, ItemPayload

__all__ = [
    "Context",
    "add_autoretry_behaviour",
    "check_request_stack",
    "current_app",
    "find_task",
    "success_line",
    "task_stack",
    "trace_item",
    "trace_with_item_clock",
    "uses_fast_trace",
]


#: The stack behind ``celery.current_task``.
task_stack: Any = _state._task_stack  # type: ignore[attr-defined]


def current_app() -> Any:
    """The app itself, not the proxy."""
    app: Any = celery.current_app
    return app._get_current_object()


def find_task(name: str) -> Any:
    """The task of that name, in a pool process.

    A spawned process has the app of its task module and a second one, unpickled, which is the
    current one and has no class-based tasks: Celery 5.7 does not find them there.

    Raises:
        celery.exceptions.NotRegistered: no app of this process has it.
    """
    app = current_app()
    if name not in app.tasks:
        for other in tuple(_state._get_active_apps()):  # type: ignore[attr-defined]
            if name in other.tasks:
                app.tasks[name] = other.tasks[name]
    return app.tasks[name]


def check_request_stack() -> None:
    """Refuse USE_FAST_LOCALS, with which Celery keys its stacks by thread instead of by greenlet."""
    if celery_threads.LocalStack is not celery_threads._LocalStack:
        raise RuntimeError("celery_batching does not work with USE_FAST_LOCALS; unset that variable")


def trace_item(batch: BatchPayload, item: ItemPayload) -> tuple[int, Any, float]:
    """Trace one item with the function Celery would give to its pool."""
    function = trace.fast_trace_task if batch.fast_trace else trace.trace_task_ret
    result: tuple[int, Any, float] = function(batch.task_name, item.id, item.request, item.call, None, None)
    return result


def trace_with_item_clock(task: Any, clock: Callable[[], float]) -> None:
    """Give the task a tracer of Celery's that reads our clock; Celery rebuilds it on reconnect."""
    if getattr(task.__trace__, "item_clock", None) is not clock:
        # Called through its module: monitoring libraries replace it there.
        tracer: Any = trace.build_tracer(task.name, task, app=task.app, hostname=_hostname(), monotonic=clock)
        tracer.item_clock = clock
        task.__trace__ = tracer


def _hostname() -> str | None:
    """The worker's node name where Celery noted it for its trace functions."""
    localized: Any = trace._localized  # type: ignore[attr-defined]
    return localized[2] if localized else None


def success_line(record: logging.LogRecord, task_id: str) -> bool:
    """Whether this is the tracer's line about the success of this task."""
    context = record.args
    return record.msg == trace.LOG_SUCCESS and isinstance(context, dict) and context.get("id") == task_id


def uses_fast_trace(app: Any) -> bool:
    """Which of its two trace functions Celery would give to the pool."""
    return bool(app.use_fast_trace_task)
