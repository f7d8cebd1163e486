"""Batch tasks, with a plain one beside each, whose brokers, backends and clocks give out."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task
from kombu import Queue

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: The most items in a batch.
SIZE = 4

#: Seconds an item of `slow` waits for company.
WAIT_S = 3.0

#: Seconds: the hard limit of the `limited` tasks, and the soft one of `soft`.
LIMIT_S = 4.0

#: Deliveries of a quorum queue after the first.
REDELIVERIES = 2

#: What a site sets for a quorum queue that drops what was delivered too often.
QUORUM = "tests_quorum"


def make_app(site: Site) -> Celery:
    """An app whose models double numbers."""
    app = site.celery("outage")
    journal = Journal(site)
    if site.settings.get(QUORUM):
        app.conf.task_queues = [quorum_queue(site.queue)]

    class Told:
        """Tells that a result is stored, and waits there."""

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            journal.record("stored", id=task_id)
            journal.pass_gate("stored")

    class ToldBatch(Told, BatchTask):
        pass

    class ToldAlone(Told, Task):
        pass

    def model(task: Task, xs: list[int]) -> list[int]:
        journal.record("run", task=task.name, items=xs)
        journal.pass_gate()
        journal.record("ran", items=xs)
        return [2 * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="outage.double", max_batch_size=SIZE)
    def double(self: BatchTask, xs: list[int]) -> list[int]:
        return model(self, xs)

    @app.task(bind=True, name="outage.double_alone", acks_late=True)
    def double_alone(self: Task, x: int) -> int:
        return model(self, [x])[0]

    @app.task(base=ToldBatch, bind=True, name="outage.told", max_batch_size=SIZE)
    def told(self: BatchTask, xs: list[int]) -> list[int]:
        return model(self, xs)

    @app.task(base=ToldAlone, bind=True, name="outage.told_alone", acks_late=True)
    def told_alone(self: Task, x: int) -> int:
        return model(self, [x])[0]

    @app.task(base=ToldBatch, bind=True, name="outage.soft", max_batch_size=SIZE, soft_time_limit=LIMIT_S)
    def soft(self: BatchTask, xs: list[int]) -> list[int]:
        return model(self, xs)

    @app.task(base=BatchTask, bind=True, name="outage.slow", max_batch_size=SIZE, max_wait=WAIT_S)
    def slow(self: BatchTask, xs: list[int]) -> list[int]:
        return model(self, xs)

    @app.task(
        base=BatchTask,
        bind=True,
        name="outage.limited",
        max_batch_size=SIZE,
        time_limit=LIMIT_S,
        acks_on_failure_or_timeout=False,
    )
    def limited(self: BatchTask, xs: list[int]) -> list[int]:
        return model(self, xs)

    @app.task(
        bind=True, name="outage.limited_alone", acks_late=True, time_limit=LIMIT_S, acks_on_failure_or_timeout=False
    )
    def limited_alone(self: Task, x: int) -> int:
        return model(self, [x])[0]

    @app.task(base=BatchTask, bind=True, name="outage.deadly", max_batch_size=SIZE)
    def deadly(self: BatchTask, xs: list[int]) -> list[int]:
        """End the process where an item is below zero."""
        answers = model(self, xs)
        if min(xs) < 0:
            os._exit(3)
        return answers

    @app.task(name="outage.add_one")
    def add_one(x: int) -> int:
        journal.record("chained", x=x)
        return x + 1

    return app


def quorum_queue(name: str) -> Queue:
    """A queue that moves what was delivered too often to another, whose name ends in `.dead`."""
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": REDELIVERIES,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{name}.dead",
    }
    return Queue(name, routing_key=name, queue_arguments=arguments)


app = make_app(Site.from_environ())
