"""The whole path of a batch in the pool process, on one screen: payload in, report out."""

from __future__ import annotations

import logging
import pickle

from .._celery_internals import exception_info, find_task, trace_with_item_clock
from ..core.outcomes import UNFINISHED
from ..errors import SetupError
from ..task import BatchTask
from .item import item_clock, terminated_here
from .messages import BatchPayload, BatchReport, ItemReply
from .model import ModelRun
from .parking import Item, park, resumed_or_new
from .quiet_logs import quiet_item_logs
from .results import step_together
from .run_clock import RunClock
from .setup import prepare

__all__ = ["prepare_tasks", "run_batch"]

logger = logging.getLogger(__name__)


def run_batch(payload: BatchPayload) -> BatchReport:
    """Decode, run, align and store one batch; every item ends with a reply of its own."""
    task: BatchTask = find_task(payload.task_name)
    try:
        prepare([task])
    except SetupError as exc:
        return BatchReport([], setup_error=str(exc))
    quiet_item_logs()
    trace_with_item_clock(task, item_clock)
    items = resumed_or_new(task, payload)
    clock = RunClock(payload.soft_time_limit, payload.hard_time_limit)
    model = ModelRun(task, payload.batch_id, payload.reason, clock)
    with clock.batch():
        # Where somebody would notice: sends prerun, stores STARTED, and stops at the body.
        step_together(items, lambda item: item.start(), task.backend, bulk=payload.bulk)
        waiting = [item for item in items if item.waits]
        outcomes = model.outcomes(waiting)
        ours = payload.fence is None or payload.fence.holds(task.app)
        ended = {item: outcome for item, outcome in zip(waiting, outcomes, strict=True) if outcome is not UNFINISHED}
        for item in waiting:
            if item not in ended:
                park(item)
        # Stores the result, calls back, sends postrun.
        end = (lambda item: item.finish(ended[item])) if ours else (lambda item: item.withdraw())
        step_together(ended, end, task.backend, bulk=payload.bulk)
    terminated_here.difference_update(item.id for item in items)
    for item in items:
        _warn_of_bypass(task, item)
    positions = {id(item): position for position, item in enumerate(items)}
    return BatchReport(
        [None if item.waits else _sendable(item.reply) for item in items],
        model.seconds,
        [[positions[id(row)] for row in group] for group in model.unfinished],
        model.fitted,
    )


def _warn_of_bypass(task: BatchTask, item: Item) -> None:
    """An overridden ``__call__`` that calls ``run`` itself hands it one item instead of columns."""
    overridden = type(task).__call__ is not BatchTask.__call__
    if overridden and item.row is None and item.reply is not None and item.reply.traced and not item.reply.traced[0]:
        logger.error("%s[%s] was not batched: its __call__ must call super().__call__(), not run()", task.name, item.id)


def prepare_tasks(task_names: list[str]) -> str | None:
    """Set the tasks up before the first batch; the error's message, or None when all is well."""
    try:
        prepare([find_task(name) for name in task_names])
    except SetupError as exc:
        return str(exc)
    return None


def _sendable(reply: ItemReply | None) -> ItemReply:
    """The reply, or how it cannot be pickled: one bad exception must not spoil the whole report."""
    if reply is None:
        raise RuntimeError("the tracer of an item gave control back before its end")
    if reply.traced is not None and not reply.traced[0]:
        return reply  # a success carries a string and a number
    try:
        pickle.dumps(reply)
    except Exception as exc:
        return ItemReply(crash=exception_info(exc))
    return reply
