"""Runs the model: rows in, one outcome per row out, splitting a batch that raises."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from celery.exceptions import Ignore, Reject, Retry

from .._celery_internals import Context, ends_process, task_stack
from ..batch import Batch
from ..core.outcomes import UNFINISHED, Outcome, Raised, align
from ..core.splitting import halves, isolate, outcomes_of
from ..errors import BatchOutputError
from .memory import free_memory, is_out_of_memory
from .run_clock import RunClock

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["ModelRun"]

#: Raised by ``run``, these mean every item and are never a reason to split.
_FOR_EVERY_ITEM = (Retry, Ignore, Reject, BatchOutputError)


class Row(Protocol):
    """What a run needs of an item; ``TracedItem``, ``DirectItem`` and a lone call have it."""

    row: dict[str, Any] | None
    run_s: float

    @property
    def request(self) -> Context | None: ...


class ModelRun:
    """All runs of ``run`` for one batch.

    Attributes:
        seconds: what they took together.
        unfinished: the groups of items for whose run the time limit left no time; they have no outcome yet.
        fitted: after a run that ran out of memory, the most items that had room.
    """

    def __init__(self, task: BatchTask, batch_id: str, reason: str, clock: RunClock | None = None) -> None:
        self.seconds = 0.0
        self.unfinished: list[Sequence[Row]] = []
        self.fitted: int | None = None
        self._clock = clock or RunClock(None)
        self._task = task
        self._batch_id = batch_id
        self._reason = reason
        self._memory_ran_out = False
        self._longest_run_s = 0.0

    def outcomes(self, items: Sequence[Row]) -> list[Outcome]:
        """One outcome per item, in order, UNFINISHED for an unfinished one; raises only when the process is ending."""
        if not items:
            return []
        done = self._run(items)
        if not isinstance(done, Raised):
            return done
        if self._task.batch_options.on_error == "split" and self._ran_out_of_memory(done):
            return self._in_halves(items, done)
        if self._fails_together(done.error, items):
            return [done] * len(items)
        return isolate(items, done, self._run_part)

    def _run_part(self, items: Sequence[Row]) -> list[Outcome] | Raised:
        if not self._clock.has_time_for(self._longest_run_s):
            self.unfinished.append(items)
            return [UNFINISHED] * len(items)
        done = self._run(items)
        if isinstance(done, Raised) and self._ran_out_of_memory(done):
            return self._in_halves(items, done)
        return done

    def _in_halves(self, items: Sequence[Row], error: Raised) -> list[Outcome]:
        """What did not fit, a half at a time; no fault lies in either, so each is run as a whole first."""
        free_memory(error.error)
        if len(items) == 1:
            return [error]
        return [outcome for half in halves(items) for outcome in outcomes_of(half, self._run_part)]

    def _ran_out_of_memory(self, done: Raised) -> bool:
        options = self._task.batch_options
        ran_out = is_out_of_memory(done.error, options.oom_errors)
        self._memory_ran_out |= ran_out
        return ran_out

    def _fails_together(self, error: BaseException, items: Sequence[Row]) -> bool:
        options = self._task.batch_options
        if isinstance(error, _FOR_EVERY_ITEM) or options.on_error == "fail":
            return True
        # Taken for transient at first: every item is retried. A batch that holds an item
        # already retried is split, so that nobody uses up its retries for a neighbour.
        transient = isinstance(error, tuple(getattr(self._task, "autoretry_for", ())))
        return transient and not any(item.request and item.request.retries for item in items)

    def _run(self, items: Sequence[Row]) -> list[Outcome] | Raised:
        started = time.monotonic()
        request = self._request(items)
        try:
            with self._clock.run():
                outcomes = self._call([item.row or {} for item in items], request)
        except BaseException as exc:  # also SystemExit: a user's sys.exit() must not end the worker
            if ends_process(exc):
                raise
            return Raised.by(exc)
        else:
            if self._memory_ran_out:
                self.fitted = max(self.fitted or 0, len(items))
            return outcomes
        finally:
            self._took(time.monotonic() - started, items)

    def _took(self, seconds: float, items: Sequence[Row]) -> None:
        self.seconds += seconds
        self._longest_run_s = max(self._longest_run_s, seconds)
        for item in items:
            item.run_s = seconds

    def _call(self, rows: list[dict[str, Any]], request: Context) -> list[Outcome]:
        args, kwargs = self._task.columns.stack(rows)
        task_stack.push(self._task)
        self._task.request_stack.push(request)
        try:
            return align(self._task.run(*args, **kwargs), len(rows), self._task.name)  # a generator runs in here
        finally:
            self._task.request_stack.pop()
            task_stack.pop()

    def _request(self, items: Sequence[Row]) -> Context:
        first: Any = items[0].request
        return Context(
            id=self._batch_id,
            task=self._task.name,
            batch=Batch(items, self._reason),
            called_directly=first.called_directly,
            is_eager=first.is_eager,
            hostname=first.hostname,
            delivery_info={},
        )
