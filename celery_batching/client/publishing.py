"""A producer that many threads share: Celery and kombu make each message, and it leaves with those of the others."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import redis
from kombu import Producer
from kombu.exceptions import OperationalError

from ..transport.publishing import Put, pushing_channel
from ..transport.pushing import Push

__all__ = ["LeanProducer"]

_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


#: Seconds that a call waits for another to declare its queue.
DECLARED_S = 1.0


class _Thread(threading.local):
    pushes: list[Push] | None = None  # in a ``together`` block
    serializer: str | None = None  # of the last message


class LeanProducer(Producer):
    """For messages that go straight to a queue which is declared; all others take the app's own producers.

    A queue that expires is declared anew with each message, which renews its life. Its messages go
    that way too, and so does a message that could not be pushed: Celery's settings say how
    long it is tried again.

    Args:
        app: the Celery app.
        connection: of its own.

    Raises:
        Exception: the broker cannot be reached.
    """

    def __init__(self, app: Any, connection: Any) -> None:
        self._app = app
        # By identity, since kombu takes long to compare queues.
        self._declared: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._declaring = threading.Lock()
        self._thread = _Thread()
        super().__init__(pushing_channel(connection), auto_declare=False)

    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        """As kombu's ``publish``."""
        if args or options.get("exchange") or not isinstance(options.get("routing_key"), str):
            return self._publish_by_celery(body, *args, **options)
        declare = options.get("declare") or ()
        if not self._are_declared(declare):
            # One at a time, so that the first calls of many threads need not as many connections; but
            # where the broker is away, each has its own retries.
            alone = self._declaring.acquire(timeout=DECLARED_S)
            try:
                if not self._are_declared(declare):
                    sent = self._publish_by_celery(body, **options)
                    self._declared.update((id(entity), entity) for entity in declare if not _expires(entity))
                    return sent
            finally:
                if alone:
                    self._declaring.release()
        self._thread.serializer = options.get("serializer") or self.serializer
        try:
            sent = super().publish(body, **{**options, "declare": None, "retry": False})
        except _LOST:
            return self._publish_by_celery(body, **options)
        self._on_loss(functools.partial(self._publish_by_celery, body, **options))
        return sent

    def _are_declared(self, entities: Any) -> bool:
        return all(id(entity) in self._declared for entity in entities)

    def push(self, key: str, text: str, again: Callable[[], Any]) -> None:
        """Push a message that is made.

        Args:
            key: of its list.
            text: as the list holds it.
            again: sends it in another way; called where the connection was lost inside a ``together`` block.

        Raises:
            Exception: it may be there, or not.
        """
        channel: Any = self.channel
        channel.pushing.push(key, text)
        self._on_loss(again)

    def _on_loss(self, again: Callable[[], Any]) -> None:
        pushes = self._thread.pushes
        if pushes and pushes[-1].again is None:
            pushes[-1].again = again

    @contextmanager
    def watched(self) -> Iterator[list[Put]]:
        """Tell what this thread publishes inside the block, where it is one message that is pushed."""
        channel: Any = self.channel
        channel.seen.put = None
        puts: list[Put] = []
        yield puts
        if channel.seen.put is not None:
            puts.append(channel.seen.put._replace(serializer=self._thread.serializer))
            channel.seen.put = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """Let what this thread publishes inside the block leave at its end, in one round trip.

        Raises:
            OperationalError: a message could not be sent, and those before it were.
        """
        channel: Any = self.channel
        with channel.pushing.held() as pushes:
            self._thread.pushes = pushes
            try:
                yield
            finally:
                self._thread.pushes = None
        for push in pushes:
            if isinstance(push.error, _LOST) and push.again is not None:
                push.again()
            elif push.error is not None:
                raise OperationalError(str(push.error)) from push.error

    def _publish_by_celery(self, body: Any, *args: Any, **options: Any) -> Any:
        with self._app.producer_or_acquire() as producer:
            return producer.publish(body, *args, **options)


def _expires(entity: Any) -> bool:
    """Whether a queue goes when it was not used for some time."""
    return bool(getattr(entity, "expires", None) or "x-expires" in (getattr(entity, "queue_arguments", None) or {}))
