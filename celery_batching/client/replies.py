"""The results of this process's calls as they come: one subscription, and a look at what is stored where none came.

No thread that waits does any I/O, so a caller's timeout is exact whatever the server does.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import redis
from celery import states

from ..transport.replies import new_reply_channel, unpacked

__all__ = ["Arrival", "Replies"]

logger = logging.getLogger(__name__)

#: Seconds for the first subscription; without it calls are sent all the same.
SUBSCRIBED_S = 1.0

#: Seconds between two attempts to subscribe again.
AGAIN_S = 0.5

#: Seconds a caller waits before what is stored is looked at: for the first time, and at most and at least later.
#: Where looking finds results that nobody told, such as those of another worker's, it is done more often.
PATIENCE_S, LEAST_PATIENCE_S = 0.5, 0.02

#: The most keys in one look.
LOOKED_AT_ONCE = 1000


class Arrival:
    """One result that is waited for.

    Attributes:
        stored: what the result backend has stored; None until it has come.
    """

    __slots__ = ("__weakref__", "_closed", "stored")

    def __init__(self) -> None:
        self.stored: bytes | None = None
        self._closed = threading.Lock()  # the lightest thing to wait for
        self._closed.acquire()

    def come(self, stored: bytes) -> None:
        """It is here."""
        if self.stored is None:
            self.stored = stored
            self._closed.release()

    def wait(self, seconds: float) -> bool:
        """Whether it has come within this time."""
        if self.stored is None and self._closed.acquire(timeout=seconds):
            self._closed.release()  # for whoever else waits
        return self.stored is not None


class Replies:
    """Listens for the results of this process's calls.

    Args:
        app: the Celery app, whose result backend is Redis.
    """

    def __init__(self, app: Any) -> None:
        self.channel = new_reply_channel()
        self._app = app
        self._lock = threading.Lock()
        self._arrivals: WeakValueDictionary[str, Arrival] = WeakValueDictionary()
        self._patience_s = PATIENCE_S
        self._look_wanted = threading.Event()
        self._subscribed = threading.Event()
        for name, act in (("listen", self._listen), ("look", self._look)):
            threading.Thread(target=_for_ever, args=(act,), name=f"batching-replies-{name}", daemon=True).start()
        self._subscribed.wait(SUBSCRIBED_S)

    def expect(self, task_id: str) -> Arrival:
        """Wait for a result from now on, for as long as the arrival is kept."""
        with self._lock:
            return self._arrivals.setdefault(task_id, Arrival())

    def wait(self, arrival: Arrival, timeout: float | None) -> bool:
        """Whether the result comes within these seconds; None: it is waited for."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not arrival.wait(max(min(self._patience_s, (end - time.monotonic()) / 2), LEAST_PATIENCE_S / 2)):
            if time.monotonic() >= end:
                return False
            self._look_wanted.set()
        return True

    def _listen(self) -> None:
        pubsub: Any = _own_client(self._app.backend, socket_timeout=None, socket_keepalive=True).pubsub()  # type: ignore[no-untyped-call]
        with pubsub:
            pubsub.subscribe(self.channel)
            for message in pubsub.listen():
                if message["type"] == "subscribe":  # again after a lost connection: some may have been missed
                    self._subscribed.set()
                    self._look_wanted.set()
                elif message["type"] == "message":
                    self._take(message["data"])

    def _take(self, message: bytes) -> None:
        try:
            for task_id, stored in unpacked(message):
                arrival = self._arrivals.get(task_id)
                if arrival is None:
                    continue
                if stored:
                    arrival.come(stored)
                else:
                    self._look_wanted.set()
        except ValueError as exc:
            logger.warning("A reply cannot be read, its results are looked up: %r", exc)
            self._look_wanted.set()
        else:
            self._patience_s = PATIENCE_S

    def _look(self) -> None:
        backend = self._app.backend
        while self._look_wanted.wait():
            self._look_wanted.clear()
            with self._lock:
                missing = [(task_id, one) for task_id, one in self._arrivals.items() if one.stored is None]
            for start in range(0, len(missing), LOOKED_AT_ONCE):
                self._look_at(backend, missing[start : start + LOOKED_AT_ONCE])
            _rest(self._patience_s / 2)  # others want a look meanwhile, and get one together

    def _look_at(self, backend: Any, missing: list[tuple[str, Arrival]]) -> None:
        values = backend.mget([backend.get_key_for_task(task_id) for task_id, _ in missing])
        found = 0
        for (_, arrival), stored in zip(missing, values, strict=True):
            if stored and arrival.stored is None and backend.decode(stored)["status"] in states.READY_STATES:
                arrival.come(stored)
                found += 1
        if found:
            self._patience_s = max(self._patience_s / 2, LEAST_PATIENCE_S)


def _for_ever(act: Callable[[], None]) -> None:
    """Act, and begin again when the server was lost."""
    while True:
        try:
            act()
        except Exception as exc:  # whatever the client raises, callers wait for this thread
            logger.warning("The result backend is lost, trying again: %r", exc)
        _rest(AGAIN_S)


def _rest(seconds: float) -> None:
    threading.Event().wait(seconds)


def _own_client(backend: Any, **options: Any) -> redis.Redis:
    """A client with connections of its own."""
    pool = backend.client.connection_pool
    kwargs = {**pool.connection_kwargs, **options}
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **kwargs))
