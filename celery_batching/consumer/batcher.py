"""The heart of the main process: holds the waiting items, asks the policy, closes batches, sends them.

All of it runs in the thread of the event loop. Without an event loop (transports that have
none) timers and pool callbacks come from threads of their own; a lock serves both.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .._celery_internals import PreforkPool, exception_info, is_discarded, is_stopping
from ..core.ceilings import Ceilings
from ..core.items import Buffer, Item, Reason
from ..core.parts import Part
from ..core.policy import Flush, WaitUntil
from ..pool.messages import BatchReport
from ..transport.redis import life_of
from .ahead import Ahead
from .alarm import Alarm
from .dispatch import send_to_pool
from .forming import Former
from .holdings import Holdings
from .intake import set_apart
from .learning import learn
from .quiet import QUIET_S, Quiet
from .reruns import Reruns
from .settle import RunningBatch
from .slots import Slots

__all__ = ["Batcher"]


class Batcher:
    """Gathers items into batches and sends each to the pool when a slot is free.

    Args:
        consumer: Celery's consumer, for its app, pool and timer.
        slots: how to get room in the pool.
        hand_over: runs a function in the thread of the event loop, in order.
        on_accepted: called when a pool process has begun with a batch.
        on_setup_error: called with the message when a pool process cannot set a task up.
        bulk: whether the results of a batch may share round trips, and a full batch may be sent ahead.
    """

    def __init__(
        self,
        consumer: Any,
        slots: Slots,
        hand_over: Callable[[Callable[[], None]], None],
        on_accepted: Callable[[], None],
        on_setup_error: Callable[[str], None],
        *,
        bulk: bool,
    ) -> None:
        self._consumer = consumer
        self._slots = slots
        self._hand_over = hand_over
        self._on_accepted = on_accepted
        self._on_setup_error = on_setup_error
        self._bulk = bulk
        self._lock = threading.RLock()
        self._buffer: Buffer[Any] = Buffer()
        self._reruns = Reruns()
        self._holdings = Holdings()
        self._ceilings = Ceilings()
        self._former = Former(consumer.app, self._buffer, self._reruns, self._ceilings, self._holdings.release)
        self._ahead = Ahead(consumer, wanted=bulk)
        self._running: dict[str, RunningBatch] = {}
        self._open = False
        self._claiming = False
        self._evaluating = False
        self._alarm = Alarm(consumer, self._ring)
        self._generation = 0
        self._blocks_reading = slots.block_the_loop
        self._shares_process = not isinstance(consumer.pool, PreforkPool)  # a crash of the model ends the worker
        self._quiet = Quiet()

    def open(self) -> None:
        """Batches may leave from now on."""
        with self._lock:
            self._open = True
            self._evaluate()

    def stop_sending(self) -> None:
        """No batch leaves from now on, until ``open``."""
        with self._lock:
            self._open = False
            self._generation += 1  # claims of this connection come to nothing

    def close(self, *, channel_lives: bool) -> list[Any]:
        """Forget the waiting items: the broker has them, or gets them back.

        Batches in the pool go on and are settled; the requests in them are returned.

        Args:
            channel_lives: whether these can still be acked, as at the end of a worker.
        """
        with self._lock:
            self.stop_sending()
            self._claiming = False
            self._alarm.set(None)
            self._buffer.clear()
            self._reruns.clear()
            for batch in [batch for batch in self._running.values() if is_discarded(batch.job)]:
                del self._running[batch.id]  # its end will never be told, and its items come again
            running = [request for batch in self._running.values() for request in batch.requests]
            if not channel_lives:
                self._holdings.lose_channel(running)
            return running

    def add(self, item: Item[Any]) -> None:
        """Take a waiting item in; a batch may leave at once."""
        with self._lock:
            if self._shares_process and self._holdings.is_suspect(item.payload):
                set_apart(item)
            if self._holdings.take_in(item.payload, life_of(self._consumer)):
                self._buffer.add(item)
                self._quiet.disturb()
                if not self._quiet.in_burst or self._former.has_filled(item.key):
                    self._evaluate()

    @contextmanager
    def burst(self, last: bool) -> Iterator[None]:
        """What may leave is decided of all that are added inside the block; ``last``: the broker has no more."""
        self._quiet.begin_burst(last=last)
        self._former.begin_burst()
        try:
            yield
        finally:
            self._quiet.end_burst()
            with self._lock:
                self._evaluate()

    def read_backlog_first(self) -> None:
        """Something has run in the loop's thread (solo pool): what came meanwhile is still to be read."""
        if self._blocks_reading and self._consumer.hub is not None:
            self._quiet.lose()
            if not self._evaluating:
                self._alarm.set(time.monotonic() + QUIET_S)

    def jobs(self) -> list[Any]:
        """What the pool gave for the batches it has."""
        with self._lock:
            return [batch.job for batch in self._running.values()]

    def snapshot(self) -> dict[str, Any]:
        """What is waiting and running, for ``inspect stats``; what has not begun waits."""
        with self._lock:
            sent = self._running.values()
            return {
                "waiting": len(self._buffer) + sum(len(batch.requests) for batch in sent if not batch.began),
                "running": [
                    {"task": batch.task.name, "size": len(batch.requests), "reason": batch.reason.value}
                    for batch in sent
                    if batch.began
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
            if self._ahead.fits(self._running.values()) and self._may_send_ahead():
                self._slots.claim(lambda: None)  # it gets the slot when the batch before it ends
                self._send_next(ahead=True)
        finally:
            self._evaluating = False

    def _may_claim(self) -> bool:
        # Asked for each item that arrives: what most often says no comes first.
        if len(self._running) >= self._consumer.pool.num_processes or not self._may_send():
            return False
        if self._reruns:
            return True
        now = time.monotonic()
        decision = self._former.decide(now)
        if isinstance(decision, Flush) and (decision.reason is Reason.FULL or self._quiet.reached):
            self._alarm.set(None)
            return True
        if self._quiet.reached:
            self._alarm.set(decision.time if isinstance(decision, WaitUntil) else None)
        else:
            self._alarm.set(now + QUIET_S)
        return False

    def _may_send(self) -> bool:
        return not self._claiming and self._open and not is_stopping()

    def _may_send_ahead(self) -> bool:
        return self._may_send() and self._next_is_full()

    def _next_is_full(self) -> bool:
        decision = None if self._reruns else self._former.decide(time.monotonic())
        return isinstance(decision, Flush) and decision.reason is Reason.FULL

    def _on_slot(self, generation: int) -> None:
        """A slot is ours: only now is the batch closed."""
        with self._lock:
            if generation != self._generation:
                self._slots.give_back()
                return
            self._claiming = False
            self._send_next(ahead=False)
            self._evaluate()

    def _send_next(self, *, ahead: bool) -> None:
        """Use a claimed slot."""
        batch = self._former.next_batch(only_full=ahead)
        if batch is None:
            self._slots.give_back()
            return
        self._running[batch.id] = batch
        try:
            send_to_pool(
                batch,
                self._consumer,
                self._hand_over,
                on_accepted=self._on_batch_accepted,
                on_report=functools.partial(self._on_report, batch),
                on_lost=functools.partial(self._on_lost, batch),
                ahead=ahead,
                more=self._ahead.pays(batch) and (ahead or self._next_is_full()),
                bulk=self._bulk,
            )
        except Exception as exc:  # it must not hold the slot for ever
            self._slots.give_back()
            self._on_lost(batch, exception_info(exc))

    def _on_batch_accepted(self) -> None:
        self._on_accepted()
        if self._ahead.possible:  # elsewhere the lock may be held by who waits for this thread to go on
            with self._lock:
                self._evaluate()

    def _on_report(self, batch: RunningBatch, report: Any) -> None:
        if not isinstance(report, BatchReport):  # an ExceptionInfo, from threads and solo
            self._on_lost(batch, report)
            return
        if report.setup_error is not None:
            self._end(batch)
            self._on_setup_error(report.setup_error)
            return
        with self._lock:
            again = batch.unfinished(report)
            self._reruns.add(again)
            self._reruns.accuse(batch.part.sibling)
            learn(self._ceilings, batch, report)
            self._ahead.learn(batch, report.run_s)
        # The next batch leaves first: settling costs time in which the model would wait.
        self._end(batch)
        batch.report(report)
        self._release(batch, again)

    def _on_lost(self, batch: RunningBatch, info: Any) -> None:
        with self._lock:
            again = batch.lost(info)
            self._reruns.add(again)
            self._release(batch, again)
            if batch.part.search.exhausted:
                self._holdings.release(self._reruns.give_up(batch.part.search))
            self._end(batch)

    def _release(self, batch: RunningBatch, again: list[Part[Any]]) -> None:
        """The items of a batch have ended, but for those that run again."""
        stay = {id(request) for part in again for request in part.rows}
        with self._lock:
            self._holdings.release(request for request in batch.requests if id(request) not in stay)

    def _end(self, batch: RunningBatch) -> None:
        batch.end()
        with self._lock:
            self._running.pop(batch.id, None)
            self.read_backlog_first()
            self._evaluate()

    def _ring(self) -> None:
        if self._blocks_reading and self._consumer.hub is None:
            # The solo pool would run the model in the alarm's thread.
            self._consumer.call_soon(self._on_alarm)
        else:
            self._on_alarm()

    def _on_alarm(self) -> None:
        with self._lock:
            self._quiet.pass_moment()
            self._evaluate()
