"""What the threads of a process share for the lean calls of an app."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from kombu.utils.uuid import uuid

from ..transport.publishing import is_plain_redis
from ._celery import has_stock_results, is_plain_redis_backend, is_told_when_sent, spare_subscription
from .call import Call
from .publishing import LeanProducer
from .replies import Replies
from .result import BatchResult
from .stencil import Stencil
from .stencils import Stencils

__all__ = ["Client", "fits"]


def fits(app: Any) -> bool:
    """Whether broker, backend and results of the app are Celery's and kombu's own, on one Redis server each."""
    stock = has_stock_results(app) and is_plain_redis(app.connection_for_write())
    return stock and is_plain_redis_backend(app.backend)


class Client:
    """What the threads of a process share for the calls of an app's batch tasks.

    Raises:
        Exception: broker or backend cannot be reached.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._producer = LeanProducer(app, app.connection_for_write())
        self._replies = Replies(app)
        self._stencils = Stencils(app, self._producer)
        self._stock_class = app.AsyncResult
        self._result_class = app.subclass_with_self(BatchResult, name="AsyncResult", reverse="AsyncResult")

    def send(self, call: Call, task_id: str | None) -> Any:
        """Send a call that Celery makes the message of.

        Args:
            call: it may be lean.
            task_id: of the caller, if any.
        """
        task_id = task_id or uuid()
        if call.ignores_result:
            return self._send_by_celery(call, task_id)
        arrival = self._replies.expect(task_id)
        spare_subscription(self._app.backend, LeanProducer)
        result = self._send_by_celery(call, task_id, reply_to=self._replies.channel)
        if type(result) is self._stock_class:  # else the task makes results of its own
            result.__class__ = self._result_class
            result.await_reply(arrival, self._replies)
        return result

    def stencil(self, call: Call) -> Stencil | None:
        """The stencil for a call; None where Celery has to make its message."""
        return self._stencils.find(call)

    def send_by_stencil(self, stencil: Stencil, call: Call, task_id: str | None) -> Any:
        """Send a call as ``send`` does, in less steps."""
        task, args, kwargs = call.task, call.args or (), call.kwargs or {}
        if task.typing:
            task.__header__(*args, **kwargs)  # type: ignore[attr-defined]
        task_id = task_id or uuid()
        if call.ignores_result:
            result, reply_to = task.AsyncResult(task_id), self._app.thread_oid
        else:
            result, reply_to = self._result_class(task_id), self._replies.channel
            result.await_reply(self._replies.expect(task_id), self._replies)
        result.ignored = call.ignores_result
        try:
            text = stencil.filled(task_id, args, kwargs, reply_to)
            self._producer.push(stencil.key, text, partial(self._send_by_celery, call, task_id, reply_to=reply_to))
        except Exception:
            self._send_by_celery(call, task_id, reply_to=reply_to)
        return result

    def _send_by_celery(self, call: Call, task_id: str, **options: Any) -> Any:
        before = self._stencils.watch(call)
        with self._producer.watched() as puts:
            result = call.send(task_id=task_id, producer=self._producer, **options)
        for put in puts:
            if before is not None:
                self._stencils.learn(call, before, task_id, put)
        return result

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let the calls that this thread sends inside the block leave at its end, in one round trip.

        Each leaves by itself where somebody is told of it then.
        """
        with nullcontext() if is_told_when_sent(self._app) else self._producer.together():
            yield
