"""One batch on its way through the pool process, on one screen: payload in, report out."""

from __future__ import annotations

import logging
import pickle

from .._celery_internals import exception_info, is_unobserved
from ..collector import collector_paused
from ..core.outcomes import UNFINISHED, Outcome, Returned
from ..task import BatchTask
from .direct import DirectItem
from .item import terminated_here
from .messages import BatchPayload, BatchReport, ItemReply
from .model import ModelRun
from .parking import Item, park, resumed_or_new
from .results import step_together
from .run_clock import RunClock

__all__ = ["BatchRun"]

logger = logging.getLogger(__name__)


class BatchRun:
    """Decodes, runs, aligns and stores one batch: ``begin``, ``run_model`` and ``end``, in this order.

    Attributes:
        payload: what came.
        clock: the time limits.
    """

    def __init__(self, task: BatchTask, payload: BatchPayload) -> None:
        self.payload = payload
        self.clock = RunClock(payload.soft_time_limit, payload.hard_time_limit)
        self._task = task
        self._items = resumed_or_new(task, payload)
        self._model = ModelRun(task, payload.batch_id, payload.reason, self.clock)
        self._ended: dict[Item, Outcome] = {}

    @property
    def spares_tracers(self) -> bool:
        """Whether up to now no tracer has run for any item, and none will for what it has come to."""
        direct = is_unobserved(self._task, BatchTask) and all(isinstance(item, DirectItem) for item in self._items)
        return direct and all(isinstance(outcome, Returned) for outcome in self._ended.values())

    def _look_for_observers(self) -> None:
        # Again, since the model may have brought them, by what it imports at its first run.
        observed = not is_unobserved(self._task, BatchTask)
        for item in self._items:
            if isinstance(item, DirectItem):
                item.observed = observed

    def begin(self) -> None:
        """Go up to the body. Where somebody would notice: send prerun, store STARTED."""
        step_together(self._items, lambda item: item.start(), self._task.backend, bulk=self.payload.bulk)

    def run_model(self) -> None:
        """Run the model for all that wait at the body."""
        waiting = [item for item in self._items if item.waits]
        with collector_paused.lifted():
            outcomes = self._model.outcomes(waiting)
        for item, outcome in zip(waiting, outcomes, strict=True):
            if outcome is UNFINISHED:
                park(item)
            else:
                self._ended[item] = outcome

    def end(self) -> BatchReport:
        """Store the results. Where somebody would notice: call back, send postrun. Every item then has its reply."""
        self._look_for_observers()
        ours = self.payload.fence is None or self.payload.fence.holds(self._task.app)
        step = (lambda item: item.finish(self._ended[item])) if ours else (lambda item: item.withdraw())
        step_together(self._ended, step, self._task.backend, bulk=self.payload.bulk)
        terminated_here.difference_update(item.id for item in self._items)
        for item in self._items:
            _warn_of_bypass(self._task, item)
        positions = {id(item): position for position, item in enumerate(self._items)}
        return BatchReport(
            [None if item.waits else _sendable(item.reply) for item in self._items],
            self._model.seconds,
            [[positions[id(row)] for row in group] for group in self._model.unfinished],
            self._model.fitted,
        )


def _warn_of_bypass(task: BatchTask, item: Item) -> None:
    """An overridden ``__call__`` that calls ``run`` itself hands it one item instead of columns."""
    overridden = type(task).__call__ is not BatchTask.__call__
    if overridden and item.row is None and item.reply is not None and item.reply.traced and not item.reply.traced[0]:
        logger.error("%s[%s] was not batched: its __call__ must call super().__call__(), not run()", task.name, item.id)


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
