"""One item whose tracer nobody would notice: where it succeeds, its result is stored, and no more.

Celery's tracer costs more than all else that a small item costs. Where nobody listens to its
signals, the task has no handlers and nothing is to be called next, all of it that can be seen of a
success is what it stores and returns. Everything else an item may come to is the tracer's, which
then runs after the model instead of around it.
"""

from __future__ import annotations

import functools
import logging
from contextlib import suppress
from typing import Any

from .._celery_internals import (
    ALONE,
    Context,
    Question,
    described,
    expects_result_alone,
    ignores_result,
    is_unobserved,
    let_wait,
    new_success,
    request_of,
    success_of,
)
from ..core.outcomes import Outcome, Returned
from ..task import BatchTask
from .item import TracedItem, asking_item, terminated_here
from .messages import BatchPayload, ItemPayload, ItemReply

__all__ = ["DirectItem", "new_items"]

logger = logging.getLogger(__name__)


def new_items(task: BatchTask, payloads: list[ItemPayload], batch: BatchPayload) -> list[TracedItem | DirectItem]:
    """The items of a batch."""
    spared = batch.bulk and is_unobserved(task, BatchTask) and let_wait(task.backend, asking_item)
    return [_new_item(task, payload, batch, spared=spared) for payload in payloads]


def _new_item(task: BatchTask, payload: ItemPayload, batch: BatchPayload, *, spared: bool) -> TracedItem | DirectItem:
    if spared and expects_result_alone(payload):
        args, kwargs, _ = payload.call
        with suppress(TypeError):  # they do not fit: the tracer says so
            return DirectItem(task, payload, batch, task.columns.row(args, kwargs))
    return TracedItem(task, payload, batch)


class DirectItem:
    """In the place of a ``TracedItem``, with the same attributes, and the same answers to the same steps.

    Attributes:
        observed: whether somebody would notice the tracer by now.
    """

    def __init__(self, task: BatchTask, payload: ItemPayload, batch: BatchPayload, row: dict[str, Any]) -> None:
        self.id = payload.id
        self.task = task
        self.row: dict[str, Any] | None = row
        self.run_s = 0.0
        self.reply: ItemReply | None = None
        self.observed = False
        self._payload = payload
        self._batch = batch
        self._outcome: Outcome | None = None
        self._success: ItemReply | None = None
        self._traced: TracedItem | None = None

    @property
    def reply_to(self) -> Any:
        """Where the caller wants to be told of the result."""
        return self._payload.request.get("reply_to")

    @functools.cached_property
    def request(self) -> Context:
        """Celery's context of the item."""
        return request_of(self._payload)

    @property
    def waits(self) -> bool:
        """Whether the item takes part in the run."""
        return self.reply is None

    def start(self) -> Question | None:
        """Nothing is to be done before the run."""

    def finish(self, outcome: Outcome) -> Question | None:
        """Store a result, or let the tracer do what else is to be done."""
        self._outcome = outcome
        if self.observed or not isinstance(outcome, Returned) or self.id in terminated_here:
            return self._trace()
        try:
            question = self._succeed(outcome.value)
        except Exception as exc:  # the tracer comes to the same, and tells of it as of everything else
            logger.debug("%s[%s] is traced: %r", self.task.name, self.id, exc)
            return self._trace()
        if question is None:
            self.reply = self._success
        return question

    def answered(self, answer: Any) -> Question | None:
        """Go on with the answer to the question."""
        if self._traced is not None:
            return self._followed(self._traced.answered(answer))
        if answer is ALONE:  # something is stored already, or the backend is away
            return self._trace()
        self.reply = self._success
        return None

    def withdraw(self) -> Question | None:
        """Store nothing: other workers have the item."""
        self.reply = ItemReply(fenced=True)
        return None

    def abandon(self) -> None:
        """Nothing has begun that would have to be ended."""

    def _succeed(self, outcome: Any) -> Question | None:
        """Make the reply; what is to be stored before it may be given."""
        value = self.task._body.stored(outcome)
        request = vars(self).get("request") or described(self._payload)
        self._success = ItemReply(traced=success_of(self.task, value, self.run_s))
        if ignores_result(self.task, request):
            return None
        return new_success(self.task.backend, self.id, value, request)

    def _trace(self) -> Question | None:
        """Let the tracer of the item go from its start to the outcome at once."""
        self._traced = TracedItem(self.task, self._payload, self._batch)
        question = self._traced.start()
        if question is not None:
            raise RuntimeError(f"the tracer of {self.id} asks before the body, though nothing is to be stored")
        if self._traced.waits and self._outcome is not None:
            self._traced.run_s = self.run_s
            question = self._traced.finish(self._outcome)
        return self._followed(question)

    def _followed(self, question: Question | None) -> Question | None:
        if self._traced is not None:
            self.reply = self._traced.reply
        return question
