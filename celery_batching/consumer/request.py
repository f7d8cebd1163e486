"""Celery's request of one item, where being part of a batch makes a difference."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

from .._celery_internals import Request, forget_request, is_cancelled, needs_ack, signal_number
from ..pool.item import terminated_here

__all__ = ["BatchRequest", "held_on"]

logger = logging.getLogger(__name__)


class _Delivery(NamedTuple):
    """A message, and how to acknowledge and to reject it from the event loop."""

    message: Any
    on_ack: Any
    on_reject: Any


#: Counts the requests in the order of their messages.
_numbers = itertools.count()

#: Also those that Celery has parked for their time or for a rate limit.
_alive: WeakSet[BatchRequest] = WeakSet()


def held_on(channel: Any) -> list[BatchRequest]:
    """What came on this channel and has not had its end, the last first."""
    held = [request for request in tuple(_alive) if request.is_held_on(channel)]
    return sorted(held, key=lambda request: request.number, reverse=True)


class BatchRequest(Request):
    """A request that may run again after the loss of its batch, stand for several deliveries of its item,
    and be terminated where nothing can be killed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._started = False
        self.number = next(_numbers)
        #: Each message that has brought this item and whose channel lives.
        self._deliveries = [_Delivery(self._message, self._first_ack, self._first_reject)]  # type: ignore[attr-defined]
        #: What every message of this item is told, also one that comes after its end.
        self._end: Callable[[BatchRequest], bool] = _acknowledge
        _alive.add(self)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for two messages that ask for the same run: a retry or a replacement has the same id only."""
        headers = self.request_dict
        return self.id, headers.get("retries") or 0, headers.get("replaced_task_nesting") or 0

    def leaves(self) -> bool:
        """Whether it was revoked, has expired or was cancelled meanwhile, and must not run."""
        if is_cancelled(self):
            return True
        try:
            return bool(self.revoked())
        except Exception:  # the result backend is away: it cannot be marked yet
            logger.exception("Cannot mark %s[%s] as revoked; it goes back to the queue", self.name, self.id)
            self.reject(requeue=True)
            return True

    def join(self, other: BatchRequest) -> bool:
        """Let another message of the same item have its end with this one; whether it has, or will have."""
        if not self.acknowledged:
            self._deliveries += other._deliveries
            return True
        return self._end(other)

    def withdraw(self) -> None:
        """Other workers have the item, and nothing about it is this one's to tell."""
        self._deliveries = []
        self.acknowledged = True
        self._end = _run_again
        forget_request(self, None)

    def disown(self) -> None:
        """The channel of its messages is dead: nothing is told to it, and the broker gives them out again."""
        self._deliveries = []

    def is_told(self) -> bool:
        """Whether each message of the ended item has had its end; Celery leaves that to the event loop's next turn."""
        for message, _, _ in self._deliveries:  # noqa: SIM110 - a generator costs as much as the rest
            if not message.acknowledged and needs_ack(message):
                return False
        return True

    def is_held_on(self, channel: Any) -> bool:
        """Whether the item came on this channel and has not had its end."""
        return not self.acknowledged and any(delivery.message.channel is channel for delivery in self._deliveries)

    def give_back(self) -> None:
        """The worker ends and has not begun with the item: its message goes back to the queue, now.

        ``reject`` would leave that to the event loop, which has ended.
        """
        self.acknowledged = True
        for number, (message, _, _) in enumerate(self._deliveries):
            if number == 0:
                message.reject_log_error(logger, self._connection_errors, requeue=True)  # type: ignore[attr-defined]
            else:
                message.ack_log_error(logger, self._connection_errors)  # type: ignore[attr-defined]
        forget_request(self, None)

    # What Celery sets for its one message, and calls at the item's end. A bound method that the
    # request itself holds would keep it from going until the collector comes.
    @property
    def _on_ack(self) -> Callable[..., None]:
        return self._acknowledge_all

    @_on_ack.setter
    def _on_ack(self, on_ack: Any) -> None:
        self._first_ack = on_ack

    @property
    def _on_reject(self) -> Callable[..., None]:
        return self._reject_all

    @_on_reject.setter
    def _on_reject(self, on_reject: Any) -> None:
        self._first_reject = on_reject

    def _acknowledge_all(self, *how: Any) -> None:
        for _, on_ack, _ in self._deliveries:
            on_ack(*how)

    def _reject_all(self, logger: Any, errors: Any, requeue: bool = False) -> None:
        """One message is rejected, or put back; the others say no more than that one and go."""
        self._end = _run_again if requeue else _reject
        for number, (_, on_ack, on_reject) in enumerate(self._deliveries):
            if number == 0:
                on_reject(logger, errors, requeue)
            else:
                on_ack(logger, errors)

    def on_accepted(self, pid: Any, time_accepted: float) -> None:
        """Announce the start, once, also when the item runs again in a fresh process."""
        if not self._started:
            self._started = True
            super().on_accepted(pid, time_accepted)
            return
        self.worker_pid = pid
        self.time_start = time.time() - (time.monotonic() - time_accepted)
        asked_for = self._terminate_on_ack  # type: ignore[attr-defined]
        if asked_for is not None:
            self.terminate(*asked_for)

    def await_rerun(self) -> None:
        """Its process is gone: who terminates the item now must wait for the next one."""
        self.time_start = self.worker_pid = None

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Revoke this item while its batch runs; the others of the batch succeed.

        On prefork the process is killed, as in Celery, and the others run again. Where the pool
        cannot kill, the run goes on for the others and this item's result is dropped.
        """
        try:
            super().terminate(pool, signal)
        except NotImplementedError:
            terminated_here.add(self.id)
            self._announce_revoked("terminated", True, signal_number(signal), False)  # type: ignore[attr-defined]

    def cancel(self, pool: Any, signal: Any = None, emit_retry: bool = True) -> None:
        """End this item's run at a cold shutdown, so that it goes back to the queue.

        Where the pool cannot kill, the run ends by itself, and is settled. Celery lets that error
        fly out of the signal handler, into the model on the solo pool.
        """
        try:
            super().cancel(pool, signal, emit_retry)
        except NotImplementedError:
            logger.warning("%s[%s] runs to its end: this pool cannot interrupt it", self.name, self.id)


def _acknowledge(other: BatchRequest) -> bool:
    other.acknowledge()
    return True


def _reject(other: BatchRequest) -> bool:
    other.reject(requeue=False)
    return True


def _run_again(other: BatchRequest) -> bool:  # noqa: ARG001
    """It was to be put back, and here it is: a new item."""
    return False
