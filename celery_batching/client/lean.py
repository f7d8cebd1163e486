"""What the threads of a process share for the lean calls of an app."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery
from celery.result import AsyncResult
from kombu.utils.uuid import uuid

from ..transport.publishing import is_plain_redis
from ._celery import is_plain_redis_backend, spare_subscription
from .publishing import LeanProducer
from .replies import Replies
from .result import BatchResult

__all__ = ["Client", "fits"]


def fits(app: Any) -> bool:
    """Whether broker, backend and results of the app are Celery's and kombu's own, on one Redis server each."""
    stock_result = type(app).AsyncResult is Celery.AsyncResult
    return stock_result and is_plain_redis(app.connection_for_write()) and is_plain_redis_backend(app.backend)


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
        stock_class: Any = self._app.AsyncResult
        if type(result) is stock_class:  # else the task makes results of its own
            result.__class__ = self._result_class
            result.await_reply(arrival, self._replies)
        return result

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let the calls that this thread sends inside the block leave at its end, in one round trip."""
        with self._producer.together():
            yield
