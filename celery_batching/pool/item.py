"""One item in the pool process: Celery's own tracer, paused where the body of the task would run.

The tracer is one long function that calls the body in its middle. It runs in a greenlet of its
own, so that it can stand still there: the tracers of all items of a batch start, wait at their
bodies, the model runs once, and each goes on with its own outcome. Signals, handlers, states,
callbacks and retries of every item are therefore Celery's, not a copy of them. Celery keys its
request stack by greenlet and greenlet keeps a ``contextvars`` context for each, so handlers see
the request and the context of their own item.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore
from greenlet import getcurrent, greenlet

from .._celery_internals import Context, Question, ends_process, trace_item, worker_lost_info
from ..core.outcomes import Outcome, Raised
from .messages import BatchPayload, ItemPayload, ItemReply

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["TracedItem", "asking_item", "current_item", "item_clock", "terminated_here"]

#: Ids of running items that were terminated in a pool that cannot kill (threads): their results
#: are dropped. Written by the main thread of the same process, emptied when the batch ends.
terminated_here: set[str] = set()

#: The item whose tracer runs in this context.
current_item: contextvars.ContextVar[TracedItem | None] = contextvars.ContextVar("celery_batching_item", default=None)


def asking_item() -> TracedItem | None:
    """The item whose tracer runs here, and not code that it has started elsewhere."""
    item = current_item.get()
    return item if item is not None and item.runs_here else None


def item_clock() -> float:
    """The clock Celery's tracer reads: what it calls the runtime is the item's last run."""
    item = current_item.get()
    return time.monotonic() if item is None else item.run_s


class TracedItem:
    """The tracer of one item, from its start to its reply.

    Attributes:
        row: the item's arguments, once its tracer has reached the body.
        request: Celery's context of the item, from the same moment on.
        run_s: seconds its last run took; 0 before.
        reply: the end of the item; None while it waits.
        marking, stored_state: what the result backend notes of the tracer (see ``Asker``).
    """

    def __init__(self, task: BatchTask, payload: ItemPayload, batch: BatchPayload) -> None:
        self.task = task
        self.row: dict[str, Any] | None = None
        self.request: Context | None = None
        self.run_s = 0.0
        self.reply: ItemReply | None = None
        self.marking = False
        self.stored_state: str | None = None
        self._fenced = False
        self._payload = payload
        self._batch = batch
        self._tracer: greenlet | None = None  # from its start to its end

    @property
    def id(self) -> str:
        """The id of the task call."""
        return self._payload.id

    @property
    def reply_to(self) -> Any:
        """Where the caller wants to be told of the result."""
        return self._payload.request.get("reply_to")

    @property
    def runs_here(self) -> bool:
        """Whether the caller is in the item's tracer."""
        return getcurrent() is self._tracer

    @property
    def waits(self) -> bool:
        """Whether the tracer stands still at the body: the item takes part in the run."""
        return self.row is not None and self.reply is None

    def at_body_of(self, task: BatchTask) -> bool:
        """Whether the body that runs is this item's, and not that of a call its handlers make."""
        request = task.request_stack.top
        return self.task is task and self.row is None and request is not None and request.id == self.id

    def start(self) -> Question | None:
        """Trace up to the body, or to the end where the body is never reached; one that waits there goes on waiting.

        This and the other steps return what the tracer asks of the result backend on its way, and
        waits for to be ``answered``.
        """
        if self.row is not None:
            return None
        self._tracer = _tracers.take()
        self._tracer.gr_context = contextvars.copy_context()
        return self._switch(self)

    def answered(self, answer: Any) -> Question | None:
        """Go on with the answer to the question."""
        return self._switch(answer)

    def withdraw(self) -> Question | None:
        """Trace to the end without storing anything: other workers have the item."""
        self._fenced = True
        return self._switch(Raised(Ignore("other workers have it")))

    def abandon(self) -> None:
        """End the tracer where it stands, without an outcome."""
        if self._tracer is not None:
            self._tracer.throw()

    def finish(self, outcome: Outcome) -> Question | None:
        """Let the body return or raise the outcome, and trace to the end."""
        if self.id in terminated_here:
            outcome = Raised(Ignore("terminated"))  # REVOKED is stored already and stays
        return self._switch(outcome)

    def ask(self, question: Question) -> Any:
        """Called by the result backend, inside the tracer: wait for the answer."""
        return getcurrent().parent.switch(question)

    def await_outcome(self, row: dict[str, Any]) -> Outcome:
        """Called by the body, inside the tracer: hand the arguments over and stand still."""
        self.row = row
        self.request = self.task.request_stack.top
        outcome: Outcome = getcurrent().parent.switch(None)
        return outcome

    def trace(self) -> None:
        """The tracer's work, from start to end."""
        current_item.set(self)
        try:
            self.reply = ItemReply(traced=trace_item(self._batch, self._payload), fenced=self._fenced)
        except BaseException as exc:
            if ends_process(exc):
                raise
            # Alone in a pool process this would have been the pool's to catch or have ended
            # the process, so the main process reports it, as Celery does then.
            self.reply = ItemReply(crash=worker_lost_info(exc), fenced=self._fenced)
        finally:
            current_item.set(None)  # the context outlives the tracer, and would hold the item and its batch

    def _switch(self, value: Any) -> Question | None:
        tracer = self._tracer
        if tracer is None:
            raise RuntimeError(f"the tracer of {self.id} has ended")
        question: Question | None = tracer.switch(value)
        if self.reply is not None:
            self._tracer = None
            _tracers.idle.append(tracer)
        return question


class _Tracers(threading.local):
    """The greenlets of a thread that have traced an item and wait for the next: new ones would cost a lot more."""

    def __init__(self) -> None:
        self.idle: list[greenlet] = []

    def take(self) -> greenlet:
        if self.idle:
            return self.idle.pop()
        tracer = greenlet(_trace_items)
        tracer.switch()  # up to where it waits for an item: what it is started with would live as long as it does
        return tracer


_tracers = _Tracers()


def _trace_items() -> None:
    while True:
        item: TracedItem = getcurrent().parent.switch(None)
        item.trace()
        del item  # it must not live until the next one comes
