"""Batch tasks of a worker that is about to end: they can be held at gates, in their setup and in their runs."""

from __future__ import annotations

import os

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: The most items in a batch.
SIZE = 4

#: Seconds that items of `patient` wait for company, longer than any test.
PATIENCE_S = 60.0


def make_app(site: Site) -> Celery:
    """An app whose models double numbers."""
    app = site.celery("ending")
    journal = Journal(site)

    class Double(BatchTask):
        name = "ending.double"
        max_batch_size = SIZE

        def setup(self) -> None:
            journal.record("setup", pid=os.getpid())
            journal.pass_gate("setup")

        def run(self, xs: list[int]) -> list[int]:
            journal.record("run", items=xs, pid=os.getpid())
            journal.pass_gate()
            journal.record("ran", items=xs)
            return [2 * x for x in xs]

    app.register_task(Double())

    @app.task(base=BatchTask, name="ending.patient", max_batch_size=SIZE, max_wait=PATIENCE_S)
    def patient(xs: list[int]) -> list[int]:
        journal.record("run", items=xs, pid=os.getpid())
        return [2 * x for x in xs]

    @app.task(base=BatchTask, name="ending.slowed", max_batch_size=SIZE, rate_limit="1/h")
    def slowed(xs: list[int]) -> list[int]:
        return [2 * x for x in xs]

    return app


app = make_app(Site.from_environ())
