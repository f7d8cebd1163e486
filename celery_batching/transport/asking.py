"""The conversation with the broker about new messages, over one connection that never blocks in the server.

Each question is a pop together with ``EXISTS`` of all lists. The connection has ``CLIENT TRACKING`` on,
so when the lists are empty by then the server tells of the first new message in any of them, and
nothing is taken until the next pop. One connection serves any number of lists, and they are not
touched while the worker waits. Only the ``EXISTS`` is tracked (``OPTIN``), since the pop reads keys that
change all the time. ``BLMOVE`` of a list onto itself would need a connection for each of
them, and takes the expiry of a queue away.
"""

from __future__ import annotations

import enum
import json
import logging
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis

from .scripts import POP, Keys, sha_of

__all__ = ["Answer", "Asking", "Question", "State"]

logger = logging.getLogger(__name__)

#: The most messages, and the most bytes but for the last of them, in one answer: so much is handled
#: before the event loop looks at anything else.
MOST_MESSAGES = 250
MOST_BYTES = 16 * 1024 * 1024


#: How many times as long a silent server is not asked, where it tells of new messages by itself.
PATIENCE_FACTOR = 5


class State(enum.Enum):
    """Where the conversation stands."""

    IDLE = "idle"
    """Nothing is asked, and there may be messages."""
    ASKED = "asked"
    """A question is out; kombu calls this a BRPOP."""
    WAITING = "waiting"
    """The lists were empty, and the server will tell of a new message."""


class Question(NamedTuple):
    """What a pop is about."""

    holder: str
    room: int
    """How many messages the worker can take."""
    lists: Sequence[str]
    """As on the server, those of the highest priority first."""
    width: int
    """How many lists each priority has."""
    in_turns: bool
    """Whether one message is taken of each queue in turn, not all of the first one."""


class Answer(NamedTuple):
    """What a pop brought; ``lists`` of the question are counted from 0."""

    lost: bool
    """Whether the holder has no lease any more."""
    messages: list[tuple[int, str, bytes]]
    """The list, the tag and the text of each."""
    junk: list[tuple[int, bytes]]
    """The list and the text of what is no message, and is on the list no more."""


class Asking:
    """The state of one channel's connection for pops."""

    def __init__(self, keys: Keys, expiry_s: int) -> None:
        self._keys, self._expiry_s = keys, expiry_s
        self._sha = sha_of(POP)
        self._prepared: Any = None  # the socket on which the server knows the script and tracks keys
        self._tracked = True
        self._sent = 0  # commands of the last question
        self._waiting_since = 0.0
        self.state = State.IDLE

    def send(self, connection: Any, question: Question) -> None:
        """Ask."""
        self.state = State.IDLE
        if connection._sock is None or connection._sock is not self._prepared:
            self._prepare(connection)
        keys = [*self._keys.all(), *question.lists]
        arguments = [
            question.holder,
            min(question.room, MOST_MESSAGES),
            MOST_BYTES,
            question.width,
            int(question.in_turns),
            self._expiry_s,
        ]
        pop = ("EVALSHA", self._sha, len(keys), *keys, *arguments)
        track = [("CLIENT", "CACHING", "YES")] if self._tracked else []
        connection.send_packed_command(connection.pack_commands([pop, *track, ("EXISTS", *question.lists)]))
        self._sent = 2 + len(track)
        self.state = State.ASKED

    def read(self, connection: Any) -> Answer | None:
        """What has come: the answer, or None when the server told of a message."""
        if self.state is not State.ASKED:
            connection.read_response(push_request=True)  # whichever list it is about
            self.state = State.IDLE
            return None
        self.state = State.IDLE
        replies = [_reply(connection) for _ in range(self._sent)]
        if isinstance(replies[0], redis.exceptions.NoScriptError):
            self._prepared = None
            return None
        for reply in (replies[0], replies[-1]):
            if isinstance(reply, Exception):
                raise reply
        for reply in replies[1:-1]:
            if isinstance(reply, Exception):
                self._goes_untracked(reply)
        # What the server tells may have come along with the answer; then the socket stays silent.
        if replies[-1] == 0 and not connection.can_read(timeout=0):
            self.state, self._waiting_since = State.WAITING, time.monotonic()
        return _answer(replies[0])

    def is_due(self, patience_s: float) -> bool:
        """Whether it is time to ask: there may be messages, or the server has been silent for long."""
        if self.state is State.WAITING:
            patience_s *= PATIENCE_FACTOR if self._tracked else 1
            return time.monotonic() - self._waiting_since >= patience_s
        return self.state is State.IDLE

    def _prepare(self, connection: Any) -> None:
        if connection._sock is None:
            connection.connect()
        connection.send_packed_command(connection.pack_commands([("SCRIPT", "LOAD", POP)]))
        connection.read_response()
        self._track(connection)
        self._prepared = connection._sock

    def _track(self, connection: Any) -> None:
        connection.send_command("CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP")
        try:
            connection.read_response()
        except redis.ResponseError as exc:
            self._goes_untracked(exc)

    def _goes_untracked(self, reason: Exception) -> None:
        """A server or a user without it: the worker asks now and then."""
        if self._tracked:
            logger.warning("The broker does not tell of new messages, which now wait for up to a second: %s", reason)
        self._tracked = False


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except redis.ResponseError as exc:
        return exc


def _answer(reply: list[Any]) -> Answer:
    if not reply[0]:
        return Answer(lost=True, messages=[], junk=[])
    _, text, taken, junk = reply
    about = json.loads(text) if taken else []
    messages = zip(about[::2], about[1::2], taken, strict=True)
    return Answer(False, list(messages), list(zip(junk[::2], junk[1::2], strict=True)))
