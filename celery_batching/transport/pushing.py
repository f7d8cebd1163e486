"""Pushes messages to their lists: those of concurrent threads leave in one round trip, on one connection.

Those for the same list are one command, so the server takes all of them or none.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

from redis.exceptions import ConnectionError, RedisError, ResponseError  # noqa: A004 - redis-py's name

__all__ = ["Push", "Pushing"]


#: The most messages in one command; a server refuses one of a million words, and answers nobody meanwhile.
MOST_IN_ONE = 500


class Push:
    """One message on its way; ``error`` is what came in its way."""

    __slots__ = ("again", "ended", "error", "key", "text")

    def __init__(self, key: str, text: str) -> None:
        # Encoded here, where what cannot be is its caller's alone.
        self.key = key.encode()
        self.text = text.encode()
        self.ended = False
        self.error: Exception | None = None
        self.again: Callable[[], Any] | None = None  # sends it in another way

    def end(self, error: Exception | None = None) -> None:
        """It is on its list, or this is why that is not certain."""
        self.error = error
        self.ended = True


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
        self._owner: int | None = None  # the thread that has the lock
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
        if self._owner == threading.get_ident():  # a finalizer calls, in the midst of a conversation
            for push in pushes:
                push.end(ConnectionError("the connection is in use"))
            return
        self._waiting.extend(pushes)
        try:
            with self._lock:
                if not all(push.ended for push in pushes):
                    self._send_all()
        finally:
            for push in pushes:
                if not push.ended:  # this thread was interrupted
                    with suppress(ValueError):
                        self._waiting.remove(push)
                    push.end(ConnectionError("interrupted"))

    def _send_all(self) -> None:
        """Send all that waits. Only the thread that has the lock takes from there."""
        self._owner = threading.get_ident()
        pushes = list(self._waiting)
        try:
            runs = list(_runs(pushes))
            self._connection.send_packed_command([part for run in runs for part in self._packed(run)])
            for run in runs:
                error = self._read()
                for push in run:
                    push.end(error)
        except BaseException as exc:  # also a Ctrl-C, or what a signal's handler raises: this thread's alone
            self._connection.disconnect()
            lost = exc if isinstance(exc, (RedisError, OSError)) else ConnectionError("interrupted")
            for push in pushes:
                if not push.ended:
                    push.end(lost)
            if lost is not exc:
                raise
        finally:
            for push in pushes:
                with suppress(ValueError):
                    self._waiting.remove(push)
            self._owner = None

    def _packed(self, run: list[Push]) -> list[bytes]:
        """One command for messages to the same list."""
        packed: list[bytes] = self._connection.pack_command("LPUSH", run[0].key, *[push.text for push in run])
        return packed

    def _read(self) -> ResponseError | None:
        try:
            self._connection.read_response()
        except ResponseError as exc:
            return exc
        return None


def _runs(pushes: list[Push]) -> Iterator[list[Push]]:
    """Messages that go to the same list in one command, in their order."""
    for _, same in groupby(pushes, attrgetter("key")):
        run = list(same)
        for start in range(0, len(run), MOST_IN_ONE):
            yield run[start : start + MOST_IN_ONE]
