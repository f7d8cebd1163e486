"""Who holds which delivery: every change to that record, each of them one Lua script."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import redis

from .scripts import ACK, BURY, MOVE, REFRESH, RENEW, Keys, sha_of

__all__ = ["Held", "Ledger", "Push", "Route"]

#: Seconds that our keys outlive the visibility timeout after the last sign of a worker. By then
#: whatever they tell of is returned by kombu itself at the next start of any worker.
OUTLIVE_S = 3600


class Push(NamedTuple):
    """How a message goes back to one queue: ``LPUSH`` or ``RPUSH``, to which list, with which text."""

    command: str
    key: str
    payload: str


class Held(NamedTuple):
    """A delivery that a dead holder still has."""

    tag: str
    holder: str


#: Finds the queues of the text kombu keeps of an unacked message; ``True`` to put it last there. What
#: must be asked for that goes through the connections of the client.
Route = Callable[[redis.Redis, bytes, bool], Sequence[Push]]


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The record on one broker.

    Args:
        client: one that does not put prefixes before keys.
        visibility_s: kombu's visibility timeout.
    """

    client: redis.Redis
    keys: Keys
    visibility_s: float

    @property
    def expiry_s(self) -> int:
        """Seconds after which our keys go when no worker renews them."""
        return int(self.visibility_s) + OUTLIVE_S

    def begin(self, holder: str, worker: str, seconds: float) -> None:
        """The first lease of a worker."""
        self._run(RENEW, holder, worker, seconds, self.expiry_s, "begin")

    def proceed(self, holder: str, worker: str, seconds: float) -> bool:
        """A new lease for a worker that had one; False when that ended without its doing."""
        return bool(self._run(RENEW, holder, worker, seconds, self.expiry_s, "continue"))

    def renew(self, holder: str, worker: str, seconds: float) -> bool:
        """Let a lease last from now on; False when its holder was declared dead."""
        return bool(self._run(RENEW, holder, worker, seconds, self.expiry_s, "renew"))

    def refresh(self, holder: str) -> int:
        """Keep what a holder has from passing the visibility timeout; how much it has."""
        return int(self._run(REFRESH, holder))

    def ack(self, holder: str, tags: Sequence[str]) -> int:
        """Remove the deliveries of these that the holder still has; how many it had."""
        return int(self._run(ACK, holder, *tags)) if tags else 0

    def requeue(self, held: Held, route: Route, *, last: bool = False) -> bool:
        """Put a delivery back on its queues; False when it is not the holder's any more."""
        value: Any = self.client.hget(self.keys.all()[0], held.tag)
        pushes = route(self.client, value, last) if value else ()
        words = [word for push in pushes for word in (push.command, push.payload)]
        lists = [self.keys.of(push.key) for push in pushes]
        return bool(self._run(MOVE, held.holder, held.tag, *words, lists=lists))

    def bury(self, *holders: str) -> list[Held]:
        """Declare the expired and these holders dead; what the dead still have, the last taken first."""
        reply = [word.decode() for word in self._run(BURY, self.expiry_s, *holders)]
        found = sorted(zip(reply[1::3], reply[::3], reply[2::3], strict=True), key=lambda one: -float(one[0]))
        return [Held(tag, holder) for _, tag, holder in found]

    def _run(self, script: str, *arguments: Any, lists: Sequence[str] = ()) -> Any:
        keys = [*self.keys.all(), *lists]
        words = (len(keys), *keys, *arguments)
        try:
            return self.client.evalsha(sha_of(script), *words)
        except redis.exceptions.NoScriptError:
            return self.client.eval(script, *words)
