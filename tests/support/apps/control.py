"""Batch tasks that are limited, revoked, linked and looked at from outside, and plain tasks beside them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.bounds import take_bounds
from tests.support.journal import Journal
from tests.support.site import Site

#: The most items in a batch of these tasks.
SIZE = 4

#: Seconds the model may take: `soft_limited` is interrupted, the process of `hard_limited` killed.
LIMIT_S = 3.0

#: Seconds that a run of `soft_limited` takes: so far below its limit that it may be held up for a while.
RUN_S = 1.0


def make_app(site: Site) -> Celery:
    """An app whose model doubles numbers and fails those that are asked to fail."""
    app = site.celery("control")
    journal = Journal(site)

    def enter(task: BatchTask, xs: list[int]) -> list[int]:
        """Stand at the gate; the count of retries of each item."""
        retries = [request.retries for request in task.batch.requests]
        threads = [thread.name for thread in threading.enumerate()]
        journal.record("run", task=task.name, items=xs, ids=task.batch.ids, retries=retries, threads=threads)
        journal.pass_gate()
        return retries

    def model(task: BatchTask, xs: list[int]) -> list[Any]:
        enter(task, xs)
        return [2 * x if x >= 0 else ValueError(f"{x} is below zero") for x in xs]

    @app.task(base=BatchTask, bind=True, name="control.double", max_batch_size=SIZE)
    def double(self: BatchTask, xs: list[int]) -> list[Any]:
        return model(self, xs)

    @app.task(base=BatchTask, bind=True, name="control.patient", max_batch_size=SIZE, max_wait=0.3)
    def patient(self: BatchTask, xs: list[int]) -> list[Any]:
        return model(self, xs)

    @app.task(base=BatchTask, name="control.echo", max_batch_size=SIZE)
    def echo(values: list[Any]) -> list[Any]:
        return values

    @app.task(bind=True, name="control.double_alone", acks_late=True)
    def double_alone(self: Any, x: int) -> int:
        journal.record("alone", item=x)
        return 2 * x

    @app.task(bind=True, name="control.collect")
    def collect(self: Any, values: list[int]) -> list[int]:
        journal.record("body", values=values)
        return values

    @app.task(bind=True, name="control.note")
    def note(self: Any, value: Any) -> Any:
        journal.record("note", value=value, parent=self.request.parent_id, root=self.request.root_id)
        return value

    @app.task(name="control.note_error")
    def note_error(request: Any, exc: BaseException, traceback: Any) -> None:
        journal.record("error", id=request.id, error=repr(exc))

    @app.task(base=BatchTask, bind=True, name="control.flaky", max_batch_size=SIZE, max_retries=3)
    def flaky(self: BatchTask, xs: list[int], failures: list[int]) -> list[Any]:
        """Double `x` after so many failures; an item is retried by an entry of its own."""
        return [
            self.batch.retry(exc=ValueError(f"{x} failed"), countdown=0) if count < wanted else 2 * x
            for x, wanted, count in zip(xs, failures, enter(self, xs), strict=True)
        ]

    @app.task(
        base=BatchTask,
        bind=True,
        name="control.transient",
        max_batch_size=SIZE,
        autoretry_for=(ConnectionError,),
        max_retries=2,
        default_retry_delay=0,
    )
    def transient(self: BatchTask, xs: list[int], failures: list[int]) -> list[Any]:
        """As `flaky`, with the error that Celery is told to retry."""
        return [
            ConnectionError(f"{x} failed") if count < wanted else 2 * x
            for x, wanted, count in zip(xs, failures, enter(self, xs), strict=True)
        ]

    @app.task(base=BatchTask, bind=True, name="control.soft_limited", max_batch_size=SIZE, soft_time_limit=LIMIT_S)
    def soft_limited(self: BatchTask, xs: list[int]) -> list[int]:
        """Take `RUN_S`, or as long as the gate is closed; raise where an item is below zero."""
        enter(self, xs)
        time.sleep(RUN_S)  # noqa: TID251 - the clock under test counts real seconds
        if min(xs) < 0:
            raise ValueError(min(xs))
        return [2 * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="control.hard_limited", max_batch_size=SIZE, time_limit=LIMIT_S)
    def hard_limited(self: BatchTask, xs: list[int]) -> list[int]:
        """Never return where an item is below zero and the gate is closed."""
        journal.record("run", task=self.name, items=xs)
        if min(xs) < 0:
            journal.pass_gate("stuck")
        return [2 * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="control.kill", max_batch_size=SIZE)
    def kill(self: BatchTask, xs: list[int]) -> list[int]:
        """End the pool process at once where an item is below zero."""
        journal.record("run", task=self.name, items=xs)
        if min(xs) < 0:
            os._exit(1)
        return xs

    return app


app = make_app(Site.from_environ())
take_bounds()
