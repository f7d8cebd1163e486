"""Batch tasks that differ in how their batches are formed; the model waits at the gate and doubles numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.bounds import take_bounds
from tests.support.journal import Journal
from tests.support.site import Site

#: By task name, the options it is declared with.
OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"max_batch_size": 4},
    "rival": {"max_batch_size": 4},
    "eager_timer": {"max_batch_size": 4, "max_wait": 0.01},
    "pair": {"max_batch_size": 2, "max_wait": 0.4},
    "burst": {"max_batch_size": 8, "max_wait": 2.0},
    "window": {"max_batch_size": 32, "max_wait": 0.1},
    "lone": {"max_batch_size": 1},
    "large": {"max_batch_size": 32},
}


def make_app(site: Site) -> Celery:
    """An app with one task for each of `OPTIONS`."""
    app = site.celery("forming")
    for name, options in OPTIONS.items():
        app.task(base=BatchTask, bind=True, name=f"forming.{name}", **options)(gated_double(Journal(site)))
    return app


def gated_double(journal: Journal) -> Callable[[BatchTask, list[int]], list[int]]:
    """A `run` that notes its items, waits at the gate, and doubles them."""

    def run(self: BatchTask, xs: list[int]) -> list[int]:
        journal.record("run", task=self.name.partition(".")[2], items=xs)
        journal.pass_gate()
        return [2 * x for x in xs]

    return run


app = make_app(Site.from_environ())
take_bounds()
