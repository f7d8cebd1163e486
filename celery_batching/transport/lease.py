"""A worker's lease on what it holds, and the thread that renews it whatever the worker's loop does.

The same thread sweeps: it returns what dead holders held, those of other workers and this
process's own earlier ones.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from typing import TypeVar

import redis

from .fence import Fence
from .ledger import Held, Ledger, Route

__all__ = ["Lease", "Past"]

logger = logging.getLogger(__name__)

EntryT = TypeVar("EntryT")

#: A lease is renewed so often while it lasts, and lasts one interval longer than its seconds: a
#: worker that stands still for less than them is never declared dead.
RENEWALS = 10

#: The sweeps in that time.
SWEEPS = 5

#: The refreshments of the index in one visibility timeout.
REFRESHMENTS = 3

#: The most deliveries that a sweep returns between two renewals.
SWEPT_AT_ONCE = 200

#: What a connection raises when the broker cannot be reached.
NO_BROKER = (redis.RedisError, OSError)


@dataclasses.dataclass
class Past:
    """What a process knows of its earlier connections to one broker."""

    worker: str | None = None
    """Its name in this life, which ends when others take what it holds."""

    orphans: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Holders that could not give back what they held, with the acks they could not send.

    They are known to be dead, so that nobody needs to wait for the end of their lease.
    """


class Lease:
    """The lease of one holder, from its first message to the end of its channel.

    Args:
        node: the worker's name, for people to read.
        seconds: how long the worker may stand still before others take what it holds.
        ledger: for the threads of the worker.
        own_ledger: with connections of its own, which give up soon; closed at the end.
        route: finds the queues of an unacked message.
        past: that of this broker.
        on_event_loop: whether ``send_acks`` is called in each of its turns.
    """

    def __init__(
        self,
        node: str,
        seconds: float,
        ledger: Ledger,
        own_ledger: Ledger,
        route: Route,
        past: Past,
        *,
        on_event_loop: bool,
    ) -> None:
        self.holder = _unique(node)
        self.lost = False
        self._sweep_s = seconds / SWEEPS
        self._interval_s = min(seconds / RENEWALS, ledger.visibility_s / REFRESHMENTS / 2)
        self._length_s = seconds + seconds / RENEWALS
        self._ledger, self._own_ledger, self._route = ledger, own_ledger, route
        self._past = past
        self._on_event_loop = on_event_loop
        self._unsent: deque[str] = deque()  # acks
        self._unreturned: deque[tuple[str, bool]] = deque()  # rejected for another run, and whether it is to be last
        self._outage = False
        self._next_sweep = time.monotonic()
        self._next_refresh = self._next_sweep + ledger.visibility_s / REFRESHMENTS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="batching-lease", daemon=True)
        self.worker, self.valid_until = self._begin(ledger, node)
        self._thread.start()

    @property
    def fence(self) -> Fence:
        """For the pool process: up to when nobody can have taken what is held here."""
        return Fence(self.worker, self._ledger.keys.workers, self.valid_until)

    def ack(self, tag: str) -> None:
        """Remove a delivery: now, or with all other acks of the event loop's turn."""
        if self._stopped.is_set():
            return  # it was returned
        self._unsent.append(tag)
        if not self._on_event_loop:
            self.send_acks()

    def send_acks(self) -> None:
        """Send the acks in one round trip; where the broker cannot be reached, the thread does it later."""
        if not self._unsent or self._stopped.is_set():
            return
        try:
            self._send_acks(self._ledger)
        except NO_BROKER as exc:
            logger.warning("Cannot ack now, trying again: %r", exc)

    def requeue(self, tag: str, *, last: bool) -> None:
        """Put a delivery back on its queue, behind all others or before them."""
        if self._stopped.is_set():
            return
        self._unreturned.append((tag, last))
        try:
            self._requeue(self._ledger)
        except NO_BROKER as exc:
            logger.warning("Cannot return a message now, trying again: %r", exc)

    def end(self) -> None:
        """Return all that is held; where the broker cannot be reached, the next lease or a sweep does it."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        self._thread.join(self._interval_s)
        ledger = self._own_ledger
        try:
            self._send_acks(ledger)
            self._return(ledger, [held for held in ledger.bury(self.holder) if held.holder == self.holder])
        except Exception as exc:  # a channel must close, whatever the state of its connection
            logger.warning("Cannot return what %s holds now, the next connection will: %r", self.holder, exc)
            self._past.orphans[self.holder] = list(self._unsent)
        finally:
            ledger.client.connection_pool.disconnect()

    def _keep(self) -> None:
        self._guarded_tick()  # what is left of others need not wait
        while not self.lost and not self._stopped.wait(self._interval_s):
            self._guarded_tick()

    def _guarded_tick(self) -> None:
        try:
            self._tick(self._own_ledger)
        except NO_BROKER as exc:
            if not self._outage:
                logger.warning("Cannot renew the lease of %s, trying again: %r", self.holder, exc)
            self._outage = True
        except Exception:  # such as of a message whose queue cannot be found
            logger.exception("A sweep failed; the lease of %s goes on", self.holder)
        else:
            self._outage = False

    def _tick(self, ledger: Ledger) -> None:
        self._renew(ledger)
        if self.lost:
            return
        self._send_acks(ledger)
        self._requeue(ledger)
        now = time.monotonic()
        if now >= self._next_refresh:
            ledger.refresh(self.holder)
            self._next_refresh = now + ledger.visibility_s / REFRESHMENTS
        if now >= self._next_sweep:
            self._sweep(ledger)

    def _begin(self, ledger: Ledger, node: str) -> tuple[str, float]:
        """The worker's name, and until when the lease lasts at least."""
        asked = time.monotonic()
        worker = self._past.worker
        if worker is None or not ledger.proceed(self.holder, worker, self._length_s):
            self._past.worker = worker = _unique(node)
            ledger.begin(self.holder, worker, self._length_s)
        return worker, asked + self._length_s

    def _renew(self, ledger: Ledger) -> None:
        asked = time.monotonic()  # before the broker is, so that the time of the answer does not count
        if ledger.renew(self.holder, self.worker, self._length_s):
            self.valid_until = asked + self._length_s
        else:
            self.lost = True
            self._past.worker = None

    def _sweep(self, ledger: Ledger) -> None:
        orphans = dict(self._past.orphans)
        for holder, unsent in orphans.items():
            ledger.ack(holder, unsent)
        found = ledger.bury(*orphans)
        for holder in orphans:
            self._past.orphans.pop(holder, None)
        for start in range(0, len(found), SWEPT_AT_ONCE):
            self._return(ledger, found[start : start + SWEPT_AT_ONCE])
            self._renew(ledger)
        self._next_sweep = time.monotonic() + self._sweep_s

    def _return(self, ledger: Ledger, found: list[Held]) -> None:
        count = sum(ledger.requeue(held, self._route) for held in found)
        if count:
            logger.info("Returned %d messages to their queues, held by %s", count, {held.holder for held in found})

    def _send_acks(self, ledger: Ledger) -> None:
        tags = _drained(self._unsent)
        try:
            ledger.ack(self.holder, tags)
        except BaseException:
            self._unsent.extend(tags)
            raise

    def _requeue(self, ledger: Ledger) -> None:
        returned = _drained(self._unreturned)
        try:
            for tag, last in returned:
                ledger.requeue(Held(tag, self.holder), self._route, last=last)
        except BaseException:
            self._unreturned.extend(returned)  # those that went back are not this holder's any more
            raise


def _unique(node: str) -> str:
    return f"{node} {uuid.uuid4().hex}"


def _drained(queue: deque[EntryT]) -> list[EntryT]:
    """All that is in it, whatever other threads do with it meanwhile."""
    found: list[EntryT] = []
    with suppress(IndexError):
        while True:
            found.append(queue.popleft())
    return found
