"""Batch tasks for the ways in which calls leave and results come back in bulk."""

from __future__ import annotations

import threading
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: The most items in a batch.
SIZE = 16


def make_app(site: Site) -> Celery:
    """An app whose models double what they get."""
    app = site.celery("lean", worker_send_task_events=False)
    journal = Journal(site)
    lock = threading.Lock()

    class Locking(BatchTask):
        """Handlers that store a state of their own under a lock which all items share."""

        def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
            with lock:
                self.update_state(state="ABOUT")

        def on_success(self, retval: Any, task_id: str, args: Any, kwargs: Any) -> None:
            with lock:
                self.backend.store_result(f"{task_id}.told", retval, "SUCCESS")

    @app.task(base=BatchTask, name="lean.double", max_batch_size=SIZE)
    def double(xs: list[int]) -> list[Any]:
        journal.record("run", items=xs)
        journal.pass_gate()
        return [ValueError(x) if x < 0 else 2 * x for x in xs]

    @app.task(base=BatchTask, name="lean.tracked", max_batch_size=SIZE, track_started=True)
    def tracked(xs: list[int]) -> list[int]:
        journal.record("run", items=xs)
        journal.pass_gate()
        return [2 * x for x in xs]

    @app.task(base=BatchTask, name="lean.repeat", max_batch_size=SIZE)
    def repeat(texts: list[str], times: list[int]) -> list[str]:
        return [text * count for text, count in zip(texts, times, strict=True)]

    @app.task(base=Locking, name="lean.locking", max_batch_size=SIZE)
    def locking(xs: list[int]) -> list[int]:
        journal.record("run", items=xs)
        journal.pass_gate()
        return [2 * x for x in xs]

    return app


app = make_app(Site.from_environ())
