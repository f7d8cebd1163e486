"""kombu's channel on Redis for publishing alone, shared by the threads of a process."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from kombu.utils.json import dumps

from ._kombu import kombu_redis
from .pushing import Pushing

__all__ = ["Put", "is_plain_redis", "pushing_channel"]


class Put(NamedTuple):
    """What kombu put on a list.

    Attributes:
        key: of the list.
        message: what is there, in JSON.
        serializer: of its body, by the name that kombu was given.
    """

    key: str
    message: dict[str, Any]
    serializer: str | None = None


class _Seen(threading.local):
    put: Put | None = None


def is_plain_redis(connection: Any) -> bool:
    """Whether a connection would use kombu's own transport for Redis, and one server."""
    return connection.get_transport_cls() is kombu_redis.Transport


def pushing_channel(connection: Any) -> Any:
    """A channel of the connection which pushes what goes to a queue, and does nothing else differently.

    Its ``seen.put`` is what the thread put last, for whoever sets it to None before.

    Raises:
        Exception: the broker cannot be reached.
    """
    channel = connection.channel()
    pushing = Pushing(channel.pool.get_connection())
    seen = _Seen()

    def put(queue: str, message: Any, **_: Any) -> None:
        key = channel._q_for_pri(queue, channel._get_message_priority(message, reverse=False))
        seen.put = Put(channel.global_keyprefix + key, message)
        pushing.push(seen.put.key, dumps(message))

    channel._put = put
    channel.pushing = pushing
    channel.seen = seen
    return channel
