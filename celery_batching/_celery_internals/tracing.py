"""Celery's tracer of one task, and what it leaves in a pool process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import celery
from celery import _state, signals
from celery.app import trace
from celery.app.autoretry import add_autoretry_behaviour
from celery.app.task import Context
from celery.loaders.base import BaseLoader
from celery.utils import threads as celery_threads
from celery.utils.nodenames import gethostname
from celery.utils.saferepr import saferepr

if TYPE_CHECKING:
    from ..pool.messages import BatchPayload, ItemPayload

__all__ = [
    "Context",
    "add_autoretry_behaviour",
    "check_request_stack",
    "current_app",
    "described",
    "expects_result_alone",
    "find_task",
    "ignores_result",
    "is_unobserved",
    "request_of",
    "success_line",
    "success_of",
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


def _hostname() -> Any:
    """The worker's node name where Celery noted it for its trace functions, as they take it."""
    localized: Any = trace._localized  # type: ignore[attr-defined]
    return localized[2] if localized else gethostname()


#: What the tracer does around the body, where a listener or a user's handler could see it.
_SIGNALS = (signals.task_prerun, signals.task_postrun, signals.task_success)
_HANDLERS = ("before_start", "on_success", "after_return")
_LOADER_HOOKS = ("on_task_init", "on_process_cleanup")

#: Functions that monitoring libraries replace.
_OWN_FUNCTIONS = ("build_tracer", "trace_task", "trace_task_ret", "fast_trace_task")

_logger = logging.getLogger(trace.__name__)


def is_unobserved(task: Any, base: type) -> bool:
    """Whether nobody could tell if the tracer had done anything for an item that succeeds but store its result.

    Args:
        task: of the items.
        base: the class whose handlers are not the user's.
    """
    app, loader = task.app, type(task.app.loader)
    return not (
        any(signal.receivers for signal in _SIGNALS)
        or task.track_started
        or _logger.isEnabledFor(logging.DEBUG)  # on which level the line of each item is
        or (app.conf.worker_deduplicate_successful_tasks and (app.conf.task_acks_late or task.acks_late))
        or any(trace.task_has_custom(task, name) for name in _HANDLERS)  # also one put onto Celery's own class
        or type(task).__call__ is not base.__call__
        or "__call__" in vars(task)
        or any(getattr(loader, name) is not getattr(BaseLoader, name) for name in _LOADER_HOOKS)
        or not all(_is_celerys(getattr(trace, name)) for name in _OWN_FUNCTIONS)
    )


def _is_celerys(function: Any) -> bool:
    # Wrappers may pretend to be what they wrap in all but their type.
    return type(function) is FunctionType and function.__code__.co_filename == trace.__file__


def expects_result_alone(item: ItemPayload) -> bool:
    """Whether nothing but the result is to come of the item when it succeeds."""
    args, kwargs, embedded = item.call
    calls_on = embedded and any(embedded.get(name) for name in ("callbacks", "chain", "chord"))
    return not calls_on and isinstance(args, (list, tuple)) and isinstance(kwargs, dict)


def request_of(item: ItemPayload) -> Context:
    """The item's request, as the tracer makes it."""
    args, kwargs, embedded = item.call
    given = {**item.request, "args": args, "kwargs": kwargs, "hostname": _hostname(), "is_eager": False}
    return Context({**given, **(embedded or {})}, args=args, kwargs=kwargs, called_directly=False)


def described(item: ItemPayload) -> Any:
    """The request as far as a result backend describes it: Celery's context costs as much as all the rest."""
    args, kwargs, embedded = item.call
    own = {"args": args, "kwargs": kwargs, "hostname": _hostname()}
    return SimpleNamespace(**{**item.request, **own, **(embedded or {})})


def ignores_result(task: Any, request: Any) -> bool:
    """Whether nothing is stored for a success."""
    ignores: bool = trace.get_actual_ignore_result(task, request)  # type: ignore[attr-defined]
    return ignores


def success_of(task: Any, value: Any, seconds: float) -> tuple[int, Any, float]:
    """What the tracer returns for a success."""
    return 0, saferepr(value, task.resultrepr_maxsize), seconds


def success_line(record: logging.LogRecord, task_id: str) -> bool:
    """Whether this is the tracer's line about the success of this task."""
    context = record.args
    return record.msg == trace.LOG_SUCCESS and isinstance(context, dict) and context.get("id") == task_id


def uses_fast_trace(app: Any) -> bool:
    """Which of its two trace functions Celery would give to the pool."""
    return bool(app.use_fast_trace_task)
