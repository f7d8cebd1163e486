"""Messages below the level of `.delay()`: kept copies of what was sent, and bodies that no client would send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from celery import Celery, Task
from celery.result import AsyncResult
from kombu.serialization import dumps
from kombu.utils.uuid import uuid


@dataclass(frozen=True, kw_only=True)
class Message:
    """One task message as the broker gets it; the body is published as it stands."""

    body: str | bytes
    headers: dict[str, Any]
    content_type: str = "application/json"
    content_encoding: str = "utf-8"
    properties: dict[str, Any] = field(default_factory=dict)

    def but(self, **changes: Any) -> Message:
        """The same message with another `body`, `content_type` and so on."""
        return replace(self, **changes)

    def with_headers(self, **headers: Any) -> Message:
        """The same message with other headers."""
        return self.but(headers={**self.headers, **headers})

    def without_header(self, name: str) -> Message:
        """The same message without a header."""
        return self.but(headers={key: value for key, value in self.headers.items() if key != name})

    def publish(self, app: Celery) -> AsyncResult:
        """Put it into the queue of the app, and return the result that its caller would wait for."""
        with app.amqp.producer_pool.acquire(block=True) as producer:
            producer.publish(
                self.body,
                headers=self.headers,
                content_type=self.content_type,
                content_encoding=self.content_encoding,
                exchange="",
                routing_key=app.conf.task_default_queue,
                declare=[app.amqp.queues[app.conf.task_default_queue]],
                **self.properties,
            )
        return app.AsyncResult(str(self.headers.get("id")))


def message_for(task: Task, *args: Any, **kwargs: Any) -> Message:
    """The message that `task.delay(...)` sends, not sent."""
    made = task.app.amqp.as_task_v2(uuid(), task.name, args, kwargs)
    return encoded(made.body, made.headers, made.properties)


@contextmanager
def sent_messages(task: Task) -> Iterator[list[Message]]:
    """Copies of the messages of one task that this process sends inside the `with` block."""
    copies: list[Message] = []
    amqp = task.app.amqp
    # Not the signal `before_task_publish`: whether it is sent is decided when the app sends for the first time.
    send = amqp.send_task_message

    def keep_and_send(producer: Any, name: str, message: Any, **options: Any) -> Any:
        if name == task.name:
            copies.append(encoded(message.body, dict(message.headers), message.properties))
        return send(producer, name, message, **options)

    amqp.send_task_message = keep_and_send
    try:
        yield copies
    finally:
        amqp.send_task_message = send


def encoded(body: Any, headers: dict[str, Any], properties: dict[str, Any]) -> Message:
    """A message with the body in JSON."""
    content_type, content_encoding, text = dumps(body, serializer="json")
    kept = {name: properties[name] for name in ("correlation_id", "reply_to") if name in properties}
    return Message(
        body=text, headers=headers, content_type=content_type, content_encoding=content_encoding, properties=kept
    )
