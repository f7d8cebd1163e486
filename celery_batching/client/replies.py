"""The results of this process's calls as they come: one subscription, and a look at what is stored where none came.

No thread that waits does any I/O, so a caller's timeout is exact whatever the server does.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import redis
from celery import states
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..transport.replies import new_reply_channel, unpacked

__all__ = ["Arrival", "Replies"]

logger = logging.getLogger(__name__)

#: Seconds for the first subscription; without it calls are sent all the same.
SUBSCRIBED_S = 1.0

#: Seconds until a lost server is tried again, at first and at most; it is twice as long each time.
AGAIN_S, MOST_AGAIN_S = 0.1, 1.0

#: Seconds a caller waits before what is stored is looked at: for the first time, and at most and at least later.
#: Where looking finds results that nobody told, such as those of another worker's, it is done more often.
PATIENCE_S, LEAST_PATIENCE_S = 0.5, 0.02

#: The most keys in one look.
LOOKED_AT_ONCE = 100


class Arrival:
    """One result that is waited for.

    Attributes:
        key: where it will be stored.
        stored: what the result backend has stored; None until it has come.
    """

    __slots__ = ("__weakref__", "_closed", "key", "stored")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.stored: bytes | None = None
        self._closed = threading.Lock()  # the lightest thing to wait for
        self._closed.acquire()

    def come(self, stored: bytes) -> None:
        """It is here."""
        if self.stored is None:
            self.stored = stored
            self._open()

    def wait(self, seconds: float) -> bool:
        """Whether it has come within this time."""
        if self.stored is None and self._closed.acquire(timeout=seconds):
            self._open()  # for whoever else waits
        return self.stored is not None

    def _open(self) -> None:
        with suppress(RuntimeError):  # another thread was faster
            self._closed.release()


class Replies:
    """Listens for the results of this process's calls, for as long as somebody keeps it.

    Its two threads keep no app alive that nobody else does, and end with this object.

    Args:
        app: the Celery app, whose result backend is Redis.
    """

    def __init__(self, app: Any) -> None:
        self.channel = new_reply_channel()
        self.look_wanted = threading.Event()
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a finalizer may call in the midst of it
        self._arrivals: WeakValueDictionary[str, Arrival] = WeakValueDictionary()
        self._patience_s = PATIENCE_S
        self._subscribed = threading.Event()
        # That of this thread: one of the looking thread's own would keep the app alive.
        self._backend = app.backend
        client = _own_client(self._backend)
        weakref.finalize(self, _end_threads, client, self.look_wanted)
        for name, act in (
            ("listen", functools.partial(_listen, client, self.channel)),
            ("look", functools.partial(_look, self.look_wanted)),
        ):
            ref = weakref.ref(self)
            threading.Thread(target=_repeat, args=(act, ref), name=f"batching-replies-{name}", daemon=True).start()
        self._subscribed.wait(SUBSCRIBED_S)

    @property
    def live(self) -> bool:
        """Whether this is their process: after a fork, the child has the object and not its threads."""
        return self._pid == os.getpid()

    @property
    def awaited(self) -> bool:
        """Whether a result has not come that somebody keeps a place for."""
        with self._lock:
            return any(arrival.stored is None for arrival in self._arrivals.values())

    def expect(self, task_id: str) -> Arrival:
        """Wait for a result from now on, for as long as the arrival is kept.

        Raises:
            TypeError: by Celery, for an id that is none.
        """
        new = Arrival(self._backend.get_key_for_task(task_id))
        with self._lock:
            arrival = self._arrivals.get(task_id)
            if arrival is None or arrival.stored is not None:  # that was the end of an earlier call of this id
                arrival = self._arrivals[task_id] = new
            return arrival

    def wait(self, arrival: Arrival, timeout: float | None) -> bool:
        """Whether the result comes within these seconds; None: it is waited for."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not arrival.wait(max(min(self._patience_s, (end - time.monotonic()) / 2), LEAST_PATIENCE_S / 2)):
            if time.monotonic() >= end:
                return False
            self.look_wanted.set()
        return True

    def look(self) -> None:
        """Look whether what has not come is stored."""
        with self._lock:
            missing = [arrival for arrival in self._arrivals.values() if arrival.stored is None]
        for start in range(0, len(missing), LOOKED_AT_ONCE):
            if _look_at(self._backend, missing[start : start + LOOKED_AT_ONCE]):
                # Nobody told of them: there may be more.
                self._patience_s = max(self._patience_s / 2, LEAST_PATIENCE_S)

    def subscribed(self) -> None:
        """The server tells of results from now on; before, some may have been missed."""
        self._subscribed.set()
        self.look_wanted.set()

    def told(self, message: bytes) -> None:
        """Some results have come."""
        try:
            told = list(unpacked(message))
        except ValueError as exc:
            logger.warning("A reply cannot be read, its results are looked up: %r", exc)
            self.look_wanted.set()
            return
        with self._lock:
            arrivals = [(self._arrivals.get(task_id), stored) for task_id, stored in told]
        for arrival, stored in arrivals:
            if arrival is not None and stored:
                arrival.come(stored)
            elif arrival is not None:
                self.look_wanted.set()
        self._patience_s = PATIENCE_S

    @property
    def rest_s(self) -> float:
        """Seconds until the next look: others want one meanwhile, and get it together."""
        return self._patience_s / 2


Ref = Callable[[], Replies | None]


class _Retries:
    """How long to wait until a lost server is tried again."""

    def __init__(self) -> None:
        self._pause_s = AGAIN_S

    def succeeded(self) -> None:
        """The next loss is a new one."""
        self._pause_s = AGAIN_S

    def failed(self, exc: Exception, *, awaited: bool) -> None:
        """Wait; the first loss is told, where somebody waits for a result."""
        level = logging.WARNING if awaited and self._pause_s == AGAIN_S else logging.DEBUG
        logger.log(level, "The result backend is lost, trying again: %r", exc)
        _rest(self._pause_s)
        self._pause_s = min(2 * self._pause_s, MOST_AGAIN_S)


def _repeat(act: Callable[[Ref, _Retries], None], ref: Ref) -> None:
    """Act for as long as the object lives, again and again where the server is lost."""
    retries = _Retries()
    while ref() is not None:
        try:
            act(ref, retries)
        except Exception as exc:  # noqa: PERF203 - whatever the client raises, callers wait for this thread
            replies = ref()
            awaited = replies is not None and replies.awaited
            del replies  # while the thread waits, it must not keep it
            retries.failed(exc, awaited=awaited)


def _listen(client: redis.Redis, channel: str, ref: Ref, retries: _Retries) -> None:
    # The connection itself: redis-py's PubSub costs more for a message than all that is done with it here.
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_command("SUBSCRIBE", channel)
        while True:
            kind, _, data = connection.read_response()
            replies = ref()
            if replies is None:
                return
            if kind == b"subscribe":
                retries.succeeded()
                replies.subscribed()
            else:
                replies.told(data)
            del replies  # while the thread waits, it must not keep it
    finally:
        connection.disconnect()
        client.connection_pool.release(connection)


def _look(wanted: threading.Event, ref: Ref, retries: _Retries) -> None:
    while wanted.wait():
        wanted.clear()
        replies = ref()
        if replies is None:
            return
        replies.look()
        retries.succeeded()
        rest_s = replies.rest_s
        del replies
        _rest(rest_s)


def _look_at(backend: Any, missing: list[Arrival]) -> bool:
    found = False
    for arrival, stored in zip(missing, backend.mget([arrival.key for arrival in missing]), strict=True):
        if stored and arrival.stored is None and _is_ready(backend, stored):
            arrival.come(stored)
            found = True
    return found


def _is_ready(backend: Any, stored: Any) -> bool:
    try:
        return backend.decode(stored)["status"] in states.READY_STATES
    except Exception as exc:  # whoever waits for it shall get that error
        logger.debug("A result cannot be decoded: %r", exc)
        return True


def _rest(seconds: float) -> None:
    threading.Event().wait(seconds)


def _own_client(backend: Any) -> redis.Redis:
    """A client of the backend's server for one thread, which waits for as long as nothing comes."""
    pool = backend.client.connection_pool
    own = {
        "protocol": 2,  # in which what a subscription brings is read like any answer
        "decode_responses": False,
        "socket_timeout": None,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }
    if issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        del own["socket_keepalive"]
    # Notifications of the server's maintenance need the newer protocol.
    given = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(("maint_", "orig_"))}
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **{**given, **own}))


def _end_threads(client: redis.Redis, look_wanted: threading.Event) -> None:
    client.connection_pool.disconnect()
    look_wanted.set()
