"""Task events as a monitor hears them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from celery import Celery

from tests.support.waiting import wait_until

Events = list[dict[str, Any]]


@contextmanager
def monitor(app: Celery) -> Iterator[Callable[[], Events]]:
    """A function that returns the task events of the workers since the beginning of the `with` block."""
    heard: Events = []
    receiver = app.events.Receiver(app.connection_for_read(), handlers={"*": heard.append})
    with receiver.consumer_context(wakeup=False) as (connection, _, _):

        def listen() -> Events:
            with suppress(TimeoutError):
                while True:
                    connection.drain_events(timeout=0.05)
            return heard

        def hear_oneself() -> Events:
            with app.events.default_dispatcher() as dispatcher:
                dispatcher.send("monitor-test")
            return listen()

        wait_until(hear_oneself, "events are heard")
        yield lambda: [event for event in listen() if event["type"].startswith("task-")]
