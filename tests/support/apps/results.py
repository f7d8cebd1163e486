"""Batch tasks whose callers must each get their own result, from hurried and from flaky models."""

from __future__ import annotations

import random
import time
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: The largest batch of both tasks.
SIZE = 16


def make_app(site: Site) -> Celery:
    """An app with a model that waits at the gate, and one of uneven speed whose items are sometimes retried."""
    app = site.celery("results")
    journal = Journal(site)

    @app.task(base=BatchTask, name="results.square", max_batch_size=SIZE)
    def square(xs: list[int]) -> list[int]:
        journal.record("run", items=xs)
        journal.pass_gate()
        return [x * x for x in xs]

    @app.task(base=BatchTask, bind=True, name="results.flaky", max_batch_size=SIZE, max_wait=0.01)
    def flaky(self: BatchTask, xs: list[str]) -> list[Any]:
        """Give the id of each call with its argument; every tenth call needs a second try."""
        time.sleep(random.uniform(0, 0.02))  # noqa: TID251 - a model of uneven speed
        return [
            self.batch.retry(countdown=0) if not call.retries and hash(call.id) % 10 == 0 else [call.id, x]
            for x, call in zip(xs, self.batch.requests, strict=True)
        ]

    return app


app = make_app(Site.from_environ())
