"""Pushes messages to their lists: those of concurrent threads leave in one round trip, on one connection."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - redis-py's name

__all__ = ["Push", "Pushing"]


class Push:
    """One message on its way; ``error`` is what came in its way."""

    __slots__ = ("again", "error", "key", "sent", "text")

    def __init__(self, key: str, text: str) -> None:
        self.key, self.text = key, text
        self.sent = False
        self.error: Exception | None = None
        self.again: Callable[[], Any] | None = None  # sends it in another way


class _Held(threading.local):
    pushes: list[Push] | None = None


class Pushing:
    """A connection that many threads share.

    Whoever gets the lock sends what all have to send by then, and reads the answers; the others
    find theirs when the lock is free.

    Args:
        connection: redis-py's.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._waiting: deque[Push] = deque()
        self._held = _Held()

    def push(self, key: str, text: str) -> None:
        """Put a message on its list; in a ``held`` block, at its end.

        Raises:
            redis.RedisError: it may be there, or not, where the connection was lost.
        """
        push = Push(key, text)
        if self._held.pushes is not None:
            self._held.pushes.append(push)
            return
        self._send([push])
        if push.error is not None:
            raise push.error

    @contextmanager
    def held(self) -> Iterator[list[Push]]:
        """Let what this thread pushes inside the block leave at its end, in one round trip.

        The list then tells what became of each message. Nothing leaves where the block raises.
        """
        pushes: list[Push] = []
        self._held.pushes = pushes
        try:
            yield pushes
        finally:
            self._held.pushes = None
        self._send(pushes)

    def _send(self, pushes: list[Push]) -> None:
        self._waiting.extend(pushes)
        with self._lock:
            if not all(push.sent for push in pushes):
                self._send_all()

    def _send_all(self) -> None:
        pushes = [self._waiting.popleft() for _ in range(len(self._waiting))]
        answered = 0
        try:
            self._connection.send_packed_command(
                self._connection.pack_commands([("LPUSH", push.key, push.text) for push in pushes])
            )
            for push in pushes:
                self._read(push)
                answered += 1
        except BaseException as exc:  # also a Ctrl-C, which is this thread's alone
            self._connection.disconnect()
            for push in pushes[answered:]:
                push.error = exc if isinstance(exc, Exception) else ConnectionError("interrupted")
            if not isinstance(exc, Exception):
                raise
        finally:
            for push in pushes:
                push.sent = True

    def _read(self, push: Push) -> None:
        try:
            self._connection.read_response()
        except ResponseError as exc:
            push.error = exc
