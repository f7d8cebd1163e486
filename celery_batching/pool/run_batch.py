"""The jobs of the pool: to set the tasks up, and to run one batch."""

from __future__ import annotations

from .._celery_internals import Workloop, find_task, trace_with_item_clock
from ..core.items import Reason
from ..errors import SetupError
from ..task import BatchTask
from .batch_run import BatchRun
from .clerk import Clerk, Deferred
from .item import item_clock
from .messages import BatchPayload, BatchReport
from .quiet_logs import quiet_item_logs
from .setup import is_set_up, prepare

__all__ = ["employ_clerk", "prepare_tasks", "run_batch"]

_clerk: Clerk | None = None


def employ_clerk() -> None:
    """In a new prefork process, before it takes jobs."""
    global _clerk  # noqa: PLW0603 - that of this process
    loop = Workloop.own()
    _clerk = None if loop is None else Clerk(loop, _get_ready)


def run_batch(payload: BatchPayload) -> BatchReport | Deferred:
    """Run one batch; its report, or what the clerk makes one of."""
    task: BatchTask = find_task(payload.task_name)
    try:
        prepare([task])
    except SetupError as exc:
        return BatchReport([], setup_error=str(exc))
    quiet_item_logs()
    trace_with_item_clock(task, item_clock)
    ready = _clerk.take(payload) if _clerk else None
    run = ready or BatchRun(task, payload)
    with run.clock.batch():
        if not ready:
            run.begin()
        if _clerk and payload.more:
            _clerk.look_ahead()
        run.run_model()
        if _clerk and _clerk.has_next() and run.spares_tracers:
            return Deferred(run)
        return run.end()


def _get_ready(payload: BatchPayload) -> BatchRun | None:
    """Begin with a batch in the clerk's thread; None where code of the user's might run for it there."""
    task: BatchTask = find_task(payload.task_name)
    limited = payload.soft_time_limit or payload.hard_time_limit
    if limited or payload.reason == Reason.SPLIT or not is_set_up(task):
        return None
    run = BatchRun(task, payload)
    if not run.spares_tracers:
        return None
    run.begin()
    return run


def prepare_tasks(task_names: list[str]) -> str | None:
    """Set the tasks up before the first batch; the error's message, or None when all is well."""
    try:
        prepare([find_task(name) for name in task_names])
    except SetupError as exc:
        return str(exc)
    return None
