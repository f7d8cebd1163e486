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
import time
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore
from greenlet import greenlet

from .._celery_internals import Context, ends_process, trace_item, worker_lost_info
from ..core.outcomes import Outcome, Raised
from .messages import BatchPayload, ItemPayload, ItemReply

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["TracedItem", "current_item", "item_clock", "terminated_here"]

#: Ids of running items that were terminated in a pool that cannot kill (threads): their results
#: are dropped. Written by the main thread of the same process, emptied when the batch ends.
terminated_here: set[str] = set()

#: The item whose tracer runs in this context.
current_item: contextvars.ContextVar[TracedItem | None] = contextvars.ContextVar("celery_batching_item", default=None)


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
    """

    def __init__(self, task: BatchTask, payload: ItemPayload, batch: BatchPayload) -> None:
        self.task = task
        self.row: dict[str, Any] | None = None
        self.request: Context | None = None
        self.run_s = 0.0
        self.reply: ItemReply | None = None
        self._payload = payload
        self._batch = batch
        self._tracer = greenlet(self._trace)
        self._tracer.gr_context = contextvars.copy_context()

    @property
    def id(self) -> str:
        """The id of the task call."""
        return self._payload.id

    @property
    def waits(self) -> bool:
        """Whether the tracer stands still at the body: the item takes part in the run."""
        return self.row is not None and self.reply is None

    def at_body_of(self, task: BatchTask) -> bool:
        """Whether the body that runs is this item's, and not that of a call its handlers make."""
        request = task.request_stack.top
        return self.task is task and self.row is None and request is not None and request.id == self.id

    def start(self) -> None:
        """Trace up to the body, or to the end where the body is never reached; one that waits there goes on waiting."""
        if self.row is None:
            self._tracer.switch()

    def withdraw(self) -> None:
        """Trace to the end without storing anything: other workers have the item."""
        self._tracer.switch(Raised(Ignore("other workers have it")))
        if self.reply is not None:
            self.reply = self.reply._replace(fenced=True)

    def abandon(self) -> None:
        """End the tracer where it stands, without an outcome."""
        self._tracer.throw()

    def finish(self, outcome: Outcome) -> None:
        """Let the body return or raise the outcome, and trace to the end."""
        if self.id in terminated_here:
            outcome = Raised(Ignore("terminated"))  # REVOKED is stored already and stays
        self._tracer.switch(outcome)

    def await_outcome(self, row: dict[str, Any]) -> Outcome:
        """Called by the body, inside the tracer: hand the arguments over and stand still."""
        self.row = row
        self.request = self.task.request_stack.top
        outcome: Outcome = self._tracer.parent.switch()
        return outcome

    def _trace(self) -> None:
        current_item.set(self)
        try:
            self.reply = ItemReply(traced=trace_item(self._batch, self._payload))
        except BaseException as exc:
            if ends_process(exc):
                raise
            # Alone in a pool process this would have been the pool's to catch or have ended
            # the process, so the main process reports it, as Celery does then.
            self.reply = ItemReply(crash=worker_lost_info(exc))
        finally:
            current_item.set(None)  # the context outlives the tracer, and would hold the item and its batch
