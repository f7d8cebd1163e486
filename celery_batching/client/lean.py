"""Which calls are lean, and what the threads of a process share for them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kombu.utils.compat import detect_environment
from kombu.utils.uuid import uuid

from .._celery_internals import has_own_backend, is_plain_redis_backend, spare_subscription
from ..options import WorkerOptions
from ..transport.publishing import is_plain_redis
from .publishing import LeanProducer
from .replies import Replies
from .result import BatchResult

if TYPE_CHECKING:
    from celery import Celery
    from celery.result import AsyncResult

    from ..task import BatchTask

__all__ = ["Client", "client_of"]

logger = logging.getLogger(__name__)

#: Seconds until a broker that could not be reached is tried again; until then calls take Celery's way.
AGAIN_S = 5.0

#: Options of a call that say how to publish it, or where its answer goes.
_OF_CELERYS_WAY = ("producer", "publisher", "connection", "reply_to")


class Client:
    """What the threads of a process share for the calls of an app's batch tasks.

    Raises:
        Exception: broker or backend cannot be reached.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._producer = LeanProducer(app, app.connection_for_write())
        self._replies = Replies(app)
        self._result_class = app.subclass_with_self(BatchResult, name="AsyncResult", reverse="AsyncResult")

    def send(self, apply_async: Callable[..., AsyncResult[Any]], task_id: str | None, ignore_result: bool) -> Any:
        """Send a call.

        Args:
            apply_async: sends it in Celery's way, with options of ours.
            task_id: of the caller, if any.
            ignore_result: whether nothing is stored.
        """
        if ignore_result:
            return apply_async(task_id=task_id, producer=self._producer)
        task_id = task_id or uuid()
        arrival = self._replies.expect(task_id)
        spare_subscription(self._app.backend, LeanProducer)
        result: Any = apply_async(task_id=task_id, producer=self._producer, reply_to=self._replies.channel)
        result.__class__ = self._result_class
        result.await_reply(arrival, self._replies)
        return result

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let the calls that this thread sends inside the block leave at its end, in one round trip."""
        with self._producer.together():
            yield


class _Place:
    """Where an app keeps its client. A forked process has another: it has no threads, and may share no connection."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._settled = False
        self._again_at = 0.0

    def client(self, app: Any) -> Client | None:
        """The client; None where the calls take Celery's way."""
        if self._settled:
            return self._client
        with self._lock:
            if not self._settled and time.monotonic() >= self._again_at:
                try:
                    self._client = Client(app) if _fits(app) else None
                    self._settled = True
                except Exception as exc:  # Celery's way has its own retries
                    logger.debug("No lean calls yet: %r", exc)
                    self._again_at = time.monotonic() + AGAIN_S
            return self._client


#: The attribute of an app under which it keeps its place.
_PLACE = "celery_batching_place"

_lock = threading.Lock()


def _place_of(app: Any) -> _Place:
    place: _Place | None = vars(app).get(_PLACE)
    if place is None or place.pid != os.getpid():
        with _lock:
            place = vars(app).get(_PLACE)
            if place is None or place.pid != os.getpid():
                place = vars(app)[_PLACE] = _Place()
    return place


def _new_lock() -> None:
    global _lock  # noqa: PLW0603 - a thread that is not in this process may hold it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)


def client_of(task: BatchTask, options: dict[str, Any]) -> Client | None:
    """The client for a call of the task with these options; None where it takes Celery's way."""
    app: Any = task.app
    if app.conf.task_always_eager or app.current_worker_task is not None:
        return None
    if has_own_backend(task) or any(options.get(name) is not None for name in _OF_CELERYS_WAY):
        return None
    return _place_of(app).client(app)


def _fits(app: Any) -> bool:
    return (
        WorkerOptions.resolve({}, os.environ, app.conf).bulk
        and detect_environment() == "default"
        and is_plain_redis(app.connection_for_write())
        and is_plain_redis_backend(app.backend)
    )
