"""The heart of the main process: holds the waiting items, asks the policy, closes batches, sends them.

All of it runs in the thread of the event loop. Without an event loop (transports that have
none) timers and pool callbacks come from threads of their own; a lock serves both.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from kombu.utils.uuid import uuid

from .._celery_internals import exception_info, is_discarded, is_stopping, uses_fast_trace
from ..core.items import Buffer, Item, Reason
from ..core.policy import Flush, WaitUntil, decide
from ..options import BatchOptions
from ..pool.messages import BatchPayload, BatchReport, ItemPayload
from ..pool.run_batch import run_batch
from .intake import task_of
from .settle import RunningBatch
from .slots import Slots

__all__ = ["Batcher"]

logger = logging.getLogger(__name__)

#: Seconds without a message that make one quiet moment of the event loop (solo pool only).
QUIET_S = 0.002

#: Quiet moments after which the broker's backlog is taken for read. The loop fires its timers
#: before it looks at its sockets, so the first may pass without a look.
QUIET_MOMENTS = 2


class Batcher:
    """Gathers items into batches and sends each to the pool when a slot is free.

    Args:
        consumer: Celery's consumer, for its app, pool and timer.
        slots: how to get room in the pool.
        hand_over: runs a function in the thread of the event loop, in order.
        on_setup_error: called with the message when a pool process cannot set a task up.
    """

    def __init__(
        self,
        consumer: Any,
        slots: Slots,
        hand_over: Callable[[Callable[[], None]], None],
        on_setup_error: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._slots = slots
        self._hand_over = hand_over
        self._on_setup_error = on_setup_error
        self._lock = threading.RLock()
        self._buffer: Buffer[Any] = Buffer()
        self._parts: deque[Sequence[Any]] = deque()  # of lost batches, to run before anything else
        self._running: dict[str, RunningBatch] = {}
        self._open = False
        self._claiming = False
        self._evaluating = False
        self._timer: Any = None
        self._timer_at = 0.0
        self._generation = 0
        self._moments_to_quiet = 0

    def open(self) -> None:
        """Batches may leave from now on."""
        with self._lock:
            self._open = True
            self._evaluate()

    def close(self) -> None:
        """Forget the waiting items: the broker has them, and gives them out again.

        Batches in the pool go on and are settled.
        """
        with self._lock:
            self._open = self._claiming = False
            self._generation += 1  # claims and timers of this connection come to nothing
            self._set_timer(None)
            self._buffer.clear()
            self._parts.clear()
            for batch in [batch for batch in self._running.values() if is_discarded(batch.job)]:
                del self._running[batch.id]  # its end will never be told, and its items come again

    def add(self, item: Item[Any]) -> None:
        """Take a waiting item in; a batch may leave at once."""
        with self._lock:
            self._buffer.add(item)
            if self._moments_to_quiet:
                self._moments_to_quiet = QUIET_MOMENTS
            self._evaluate()

    def snapshot(self) -> dict[str, Any]:
        """What is waiting and running, for ``inspect stats``."""
        with self._lock:
            return {
                "waiting": len(self._buffer),
                "running": [
                    {"task": batch.task.name, "size": len(batch.requests), "reason": batch.reason.value}
                    for batch in self._running.values()
                ],
            }

    def _evaluate(self) -> None:
        """Send all batches that may leave, then set the timer for the next."""
        if self._evaluating:
            return  # a batch of the solo pool has just ended inside the loop below
        self._evaluating = True
        try:
            while self._may_claim():
                self._claiming = True
                self._slots.claim(functools.partial(self._on_slot, self._generation))
                if self._claiming:
                    return  # the slot comes later
        finally:
            self._evaluating = False

    def _may_claim(self) -> bool:
        if not self._open or is_stopping() or self._claiming or len(self._running) >= self._consumer.pool.num_processes:
            return False
        if self._parts:
            return True
        now = time.monotonic()
        decision = decide(self._buffer.windows.items(), self._options, now)
        if isinstance(decision, Flush) and (decision.reason is Reason.FULL or not self._moments_to_quiet):
            self._set_timer(None)
            return True
        if self._moments_to_quiet:
            self._set_timer(now + QUIET_S)
        else:
            self._set_timer(decision.time if isinstance(decision, WaitUntil) else None)
        return False

    def _on_slot(self, generation: int) -> None:
        """A slot is ours: only now is the batch closed."""
        with self._lock:
            if generation != self._generation:
                self._slots.give_back()
                return
            self._claiming = False
            batch = self._next_batch()
            if batch is None:
                self._slots.give_back()
            else:
                self._send(batch)
            self._evaluate()

    def _next_batch(self) -> RunningBatch | None:
        if self._parts:
            requests = self._parts.popleft()
            return RunningBatch(uuid(), requests[0].task, requests, Reason.SPLIT, 0.0)
        while True:
            now = time.monotonic()
            decision = decide(self._buffer.windows.items(), self._options, now)
            if not isinstance(decision, Flush):
                return None
            items = self._take(decision.key, decision.size, now)
            if items:  # else all of them were revoked or expired, and the next window may go
                requests = [item.payload for item in items]
                waited_s = now - min(item.arrived for item in items)
                return RunningBatch(uuid(), requests[0].task, requests, decision.reason, waited_s)

    def _take(self, key: Hashable, size: int, now: float) -> list[Item[Any]]:
        """Up to ``size`` items, those left out that were revoked or have expired while they waited."""
        items: list[Item[Any]] = []
        while len(items) < size and (item := self._buffer.pop(key, now)) is not None:
            if not self._revoked(item.payload):
                items.append(item)
        return items

    @staticmethod
    def _revoked(request: Any) -> bool:
        try:
            return bool(request.revoked())
        except Exception:  # the result backend is away: it cannot be marked yet
            logger.exception("Cannot mark %s[%s] as revoked; it goes back to the queue", request.name, request.id)
            request.reject(requeue=True)
            return True

    def _options(self, key: Hashable) -> BatchOptions:
        return task_of(key, self._consumer.app).batch_options

    def _send(self, batch: RunningBatch) -> None:
        self._running[batch.id] = batch
        message_hard, message_soft = batch.requests[0].time_limits
        hard = message_hard or batch.task.time_limit
        soft = message_soft or batch.task.soft_time_limit
        try:
            self._apply(batch, hard, soft)
        except Exception as exc:  # a message the pool cannot pickle: it must not hold the slot for ever
            self._slots.give_back()
            self._on_lost(batch, exception_info(exc))

    def _apply(self, batch: RunningBatch, hard: float | None, soft: float | None) -> None:
        worker = self._consumer.controller
        job = self._consumer.pool.apply_async(
            run_batch,
            args=(self._payload(batch, soft or worker.soft_time_limit),),
            accept_callback=lambda pid, at: self._hand_over(lambda: batch.accepted(pid, at)),
            timeout_callback=lambda soft, timeout: self._on_timeout(batch, soft, timeout),
            callback=lambda report: self._hand_over(lambda: self._on_report(batch, report)),
            error_callback=lambda info, **_: self._hand_over(lambda: self._on_lost(batch, info)),
            soft_timeout=soft,
            timeout=hard,
            correlation_id=batch.id,
        )
        batch.sent(job)

    def _payload(self, batch: RunningBatch, soft: float | None) -> BatchPayload:
        items = [
            ItemPayload(request.id, request.request_dict, request.body, request.content_type, request.content_encoding)
            for request in batch.requests
        ]
        fast = uses_fast_trace(self._consumer.app)
        return BatchPayload(batch.task.name, batch.id, batch.reason.value, items, soft, fast)

    def _on_timeout(self, batch: RunningBatch, soft: bool, timeout: float) -> None:
        if soft:  # a hard one comes as the loss of the batch
            self._hand_over(lambda: batch.soft_timeout(timeout))

    def _on_report(self, batch: RunningBatch, report: Any) -> None:
        if not isinstance(report, BatchReport):  # an ExceptionInfo, from threads and solo
            self._on_lost(batch, report)
            return
        if report.setup_error is not None:
            self._end(batch)
            self._on_setup_error(report.setup_error)
            return
        # The next batch leaves first: settling costs time in which the model would wait.
        self._end(batch)
        batch.report(report)

    def _on_lost(self, batch: RunningBatch, info: Any) -> None:
        with self._lock:
            self._parts.extend(batch.lost(info))
            self._end(batch)

    def _end(self, batch: RunningBatch) -> None:
        with self._lock:
            self._running.pop(batch.id, None)
            if self._slots.block_the_loop:
                self._moments_to_quiet = QUIET_MOMENTS
            self._evaluate()

    def _set_timer(self, at: float | None) -> None:
        """Ask the policy again at exactly this time of the monotonic clock, and at no other."""
        if self._timer is not None and self._timer_at != at:
            self._timer.cancel()
            self._timer = None
        if at is not None and self._timer is None:
            self._timer_at = at
            self._timer = self._call_after(max(at - time.monotonic(), 0.0), self._on_timer, self._generation)

    def _call_after(self, delay: float, function: Callable[[int], None], generation: int) -> Any:
        """A started timer that can be cancelled.

        Without an event loop Celery's timer looks at its entries once a second only.
        """
        if self._consumer.hub is not None:
            return self._consumer.timer.call_after(delay, function, (generation,))
        timer = threading.Timer(delay, function, (generation,))
        timer.daemon = True
        timer.start()
        return timer

    def _on_timer(self, generation: int) -> None:
        with self._lock:
            if generation == self._generation:
                self._timer = None
                self._moments_to_quiet = max(self._moments_to_quiet - 1, 0)
                self._evaluate()
