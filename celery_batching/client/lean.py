"""Which calls are lean, and what the threads of a process share for them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

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


class _Clients:
    """The clients of this process. A forked one begins with none: it has no threads, and may share no connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_app: WeakKeyDictionary[Celery, Client | None] = WeakKeyDictionary()
        self._again_at = 0.0

    def of(self, app: Celery) -> Client | None:
        """The client of an app; None where its calls take Celery's way."""
        try:
            return self._by_app[app]
        except KeyError:
            pass
        with self._lock:
            if app not in self._by_app and time.monotonic() >= self._again_at:
                try:
                    self._by_app[app] = Client(app) if _fits(app) else None
                except Exception as exc:  # Celery's way has its own retries
                    logger.debug("No lean calls yet: %r", exc)
                    self._again_at = time.monotonic() + AGAIN_S
            return self._by_app.get(app)


_clients = _Clients()


def _forget_clients() -> None:
    global _clients  # noqa: PLW0603 - the process is another one
    _clients = _Clients()


os.register_at_fork(after_in_child=_forget_clients)


def client_of(task: BatchTask, options: dict[str, Any]) -> Client | None:
    """The client for a call of the task with these options; None where it takes Celery's way."""
    app: Any = task.app
    if app.conf.task_always_eager or app.current_worker_task is not None:
        return None
    if has_own_backend(task) or any(options.get(name) is not None for name in _OF_CELERYS_WAY):
        return None
    return _clients.of(app)


def _fits(app: Any) -> bool:
    return (
        WorkerOptions.resolve({}, os.environ, app.conf).bulk
        and detect_environment() == "default"
        and is_plain_redis(app.connection_for_write())
        and is_plain_redis_backend(app.backend)
    )
