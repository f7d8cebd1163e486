"""Which calls are lean; a process none of whose calls can be loads nothing of what they need."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from kombu.utils.compat import detect_environment

from ..options import WorkerOptions

if TYPE_CHECKING:
    from ..task import BatchTask
    from .call import Call
    from .lean import Client

__all__ = ["client_of", "send"]

logger = logging.getLogger(__name__)

#: Seconds until a broker that could not be reached is tried again; until then calls take Celery's way.
AGAIN_S = 10.0

#: Options of a call that say how to publish it, or where its answer goes.
_OF_CELERYS_WAY = ("producer", "publisher", "connection", "reply_to")

_REDIS = ("redis", "rediss")


def send(call: Call, task_id: str | None, producer: Any) -> Any:
    """Send a call, in as few steps as it allows.

    Args:
        call: of a batch task.
        task_id: of the caller, if any.
        producer: of the caller, if any.
    """
    if producer is not None:
        return call.send(task_id=task_id, producer=producer)
    client = _place_of(call.task.app).settled
    stencil = None if client is None else client.stencil(call)
    if client is not None and stencil is not None:
        return client.send_by_stencil(stencil, call, task_id)
    client = client_of(call.task, call.options)
    return call.send(task_id=task_id) if client is None else client.send(call, task_id)


def client_of(task: BatchTask, options: dict[str, Any]) -> Client | None:
    """The client for a call of the task with these options; None where it takes Celery's way."""
    app: Any = task.app
    if app.conf.task_always_eager or app.current_worker_task is not None:
        return None
    if any(options.get(name) is not None for name in _OF_CELERYS_WAY):
        return None
    client = _place_of(app).client(app)
    return client if client is not None and task.backend is app.backend else None


class _Place:
    """Where an app keeps its client. A forked process has another: it has no threads, and may share no connection."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._settled = False
        self._again_at = 0.0

    @property
    def settled(self) -> Client | None:
        """The client, if there is one by now."""
        return self._client

    def client(self, app: Any) -> Client | None:
        """The client; None where the calls take Celery's way."""
        if self._settled:
            return self._client
        # The first time all wait; when a server was away then, one thread tries again, the others go on.
        if not self._lock.acquire(blocking=self._again_at == 0.0):
            return None
        try:
            if not self._settled and time.monotonic() >= self._again_at:
                try:
                    self._client = _new_client(app)
                    self._settled = True
                except Exception as exc:  # Celery's way has its own retries
                    logger.debug("No lean calls yet: %r", exc)
                    self._again_at = time.monotonic() + AGAIN_S
            return self._client
        finally:
            self._lock.release()


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


def _new_client(app: Any) -> Client | None:
    """None where it has no use.

    Raises:
        Exception: broker or backend cannot be reached.
    """
    schemes = (app.connection_for_write().transport_cls, str(app.conf.result_backend).partition(":")[0])
    if not WorkerOptions.resolve({}, os.environ, app.conf).bulk or detect_environment() != "default":
        return None
    if not all(scheme in _REDIS for scheme in schemes):
        return None
    from .lean import Client, fits  # noqa: PLC0415  loads redis

    return Client(app) if fits(app) else None
