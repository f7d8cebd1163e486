"""A worker's lease on what it holds, and the thread that renews it whatever the worker's loop does.

The same thread sweeps: it returns what dead holders held, those of other workers and this
process's own earlier ones.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from contextlib import suppress

import redis

from .fence import Fence
from .ledger import Held, Ledger, Route

__all__ = ["Lease", "Orphans"]

logger = logging.getLogger(__name__)

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
class Orphans:
    """Holders of this process whose connection was lost before they could give back what they held.

    They are known to be dead, so that nobody needs to wait for the end of their lease.
    """

    holders: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """With the acks that each could not send."""


class Lease:
    """The lease of one holder, from its first message to the end of its channel.

    Args:
        holder: a name that nobody else has.
        seconds: how long the worker may stand still before others take what it holds.
        ledger: for the threads of the worker.
        own_ledger: with connections of its own, which give up soon; closed at the end.
        route: finds the queues of an unacked message.
        orphans: those of this broker.
    """

    def __init__(
        self,
        holder: str,
        seconds: float,
        ledger: Ledger,
        own_ledger: Ledger,
        route: Route,
        orphans: Orphans,
    ) -> None:
        self.holder = holder
        self.lost = False
        self._interval_s = seconds / RENEWALS
        self._length_s = seconds + self._interval_s
        self._ledger, self._own_ledger, self._route = ledger, own_ledger, route
        self._orphans = orphans
        self._unsent: deque[str] = deque()  # acks
        self._unreturned: deque[str] = deque()  # rejected for another run
        self._outage = False
        self._next_sweep = time.monotonic()
        self._next_refresh = self._next_sweep + ledger.visibility_s / REFRESHMENTS
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="batching-lease", daemon=True)
        self.valid_until = self._renew(ledger, new=True)
        self._thread.start()

    @property
    def fence(self) -> Fence:
        """For the pool process: up to when nobody can have taken what is held here."""
        return Fence(self.holder, self._ledger.keys.leases, self.valid_until)

    def ack(self, tag: str) -> None:
        """Remove a delivery; where the broker cannot be reached, the thread does it later."""
        if self._stopped.is_set():
            return  # it was returned
        self._unsent.append(tag)
        try:
            self._send_acks(self._ledger)
        except NO_BROKER as exc:
            logger.warning("Cannot ack now, trying again: %r", exc)

    def requeue(self, tag: str) -> None:
        """Put a delivery back on its queue, behind all others."""
        if self._stopped.is_set():
            return
        self._unreturned.append(tag)
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
            self._orphans.holders[self.holder] = list(self._unsent)
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
        self.valid_until = self._renew(ledger)
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

    def _renew(self, ledger: Ledger, *, new: bool = False) -> float:
        """Renew it; until when it lasts at least, counted from before the broker was asked."""
        asked = time.monotonic()
        if not ledger.renew(self.holder, self._length_s, new=new):
            self.lost = True
            return asked
        return asked + self._length_s

    def _sweep(self, ledger: Ledger) -> None:
        orphans = dict(self._orphans.holders)
        for holder, unsent in orphans.items():
            ledger.ack(holder, unsent)
        found = ledger.bury(*orphans)
        for holder in orphans:
            self._orphans.holders.pop(holder, None)
        for start in range(0, len(found), SWEPT_AT_ONCE):
            self._return(ledger, found[start : start + SWEPT_AT_ONCE])
            self.valid_until = self._renew(ledger)
        self._next_sweep = time.monotonic() + self._interval_s * RENEWALS / SWEEPS

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
        tags = _drained(self._unreturned)
        try:
            for tag in tags:
                ledger.requeue(Held(tag, self.holder), self._route, last=True)
        except BaseException:
            self._unreturned.extend(tags)  # those that went back are not this holder's any more
            raise


def _drained(queue: deque[str]) -> list[str]:
    """All that is in it, whatever other threads do with it meanwhile."""
    found: list[str] = []
    with suppress(IndexError):
        while True:
            found.append(queue.popleft())
    return found
