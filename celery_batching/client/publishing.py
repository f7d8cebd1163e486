"""A producer that many threads share: Celery and kombu make each message, and it leaves with those of the others."""

from __future__ import annotations

from typing import Any

import redis
from kombu import Producer

from ..transport.publishing import pushing_channel

__all__ = ["LeanProducer"]

_LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


class LeanProducer(Producer):
    """For messages that go straight to a queue which is declared; all others take the app's own producers.

    So does a message that could not be pushed: Celery's settings say how long it is tried again.

    Args:
        app: the Celery app.
        connection: of its own.

    Raises:
        Exception: the broker cannot be reached.
    """

    def __init__(self, app: Any, connection: Any) -> None:
        self._app = app
        self._declared: dict[int, Any] = {}  # by identity, since kombu takes long to compare queues
        super().__init__(pushing_channel(connection), auto_declare=False)

    def publish(self, body: Any, *args: Any, **options: Any) -> Any:
        """As kombu's ``publish``."""
        if args or options.get("exchange") or not isinstance(options.get("routing_key"), str):
            return self._publish_by_celery(body, *args, **options)
        declare = options.get("declare") or ()
        if not all(id(entity) in self._declared for entity in declare):
            sent = self._publish_by_celery(body, **options)
            self._declared.update((id(entity), entity) for entity in declare)
            return sent
        try:
            return super().publish(body, **{**options, "declare": None, "retry": False})
        except _LOST:
            return self._publish_by_celery(body, **options)

    def _publish_by_celery(self, body: Any, *args: Any, **options: Any) -> Any:
        with self._app.producer_or_acquire() as producer:
            return producer.publish(body, *args, **options)
