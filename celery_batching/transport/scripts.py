"""The Lua scripts of this folder, and the keys they work on."""

from __future__ import annotations

import dataclasses
import functools
from hashlib import sha1
from importlib.resources import files

__all__ = ["ACK", "BURY", "MOVE", "POP", "REFRESH", "RENEW", "Keys", "sha_of"]


def _read(name: str) -> str:
    folder = files(__package__) / "lua"
    return "\n".join((folder / f"{part}.lua").read_text() for part in ("prelude", name))


POP = _read("pop")
ACK = _read("ack")
MOVE = _read("move")
RENEW = _read("renew")
REFRESH = _read("refresh")
BURY = _read("bury")


@functools.cache
def sha_of(script: str) -> str:
    """The name under which Redis keeps a script."""
    return sha1(script.encode()).hexdigest()  # noqa: S324 - Redis's own choice


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """The keys of kombu's unacked messages, and ours beside them, as they are on the server.

    Ours carry kombu's name for the unacked messages, so that two apps which set that apart share
    nothing here either. Each of ours expires: without a living worker none stays for ever.

    Args:
        prefix: kombu's ``global_keyprefix``; its clients put it before the first key of a script
            only, so it is put before every key here.
        unacked: kombu's hash of messages that were delivered and not acked.
        index: kombu's sorted set of their tags, by the time of their delivery.
    """

    prefix: str
    unacked: str
    index: str

    def all(self) -> list[str]:
        """In the order in which every script expects them."""
        ours = [f"celery_batching.{self.unacked}.{name}" for name in ("held", "leases", "dead", "workers")]
        return [self.of(key) for key in (self.unacked, self.index, *ours)]

    @property
    def workers(self) -> str:
        """The sorted set of the workers none of whose holders were declared dead by others."""
        return self.all()[5]

    def of(self, key: str) -> str:
        """A key as it is on the server."""
        return self.prefix + key
