"""A worker whose main process has no garbage collector, and tells how many of its requests and batches live."""

from __future__ import annotations

import gc
from typing import Any

from celery import Celery
from celery.signals import worker_ready
from celery.worker.control import inspect_command

from celery_batching import BatchTask
from celery_batching.consumer.request import BatchRequest
from celery_batching.consumer.settle import RunningBatch
from tests.support.apps.forming import gated_double
from tests.support.journal import Journal
from tests.support.site import Site


def make_app(site: Site) -> Celery:
    """An app with one task that waits at the gate and doubles numbers."""
    app = site.celery("uncollected")
    app.task(base=BatchTask, bind=True, name="uncollected.double")(gated_double(Journal(site)))
    for name, options in {"objects": {}, "objects_traced": {"track_started": True}}.items():
        app.task(base=BatchTask, name=f"uncollected.{name}", **options)(count_objects)
    return app


def count_objects(xs: list[int]) -> list[int]:
    """How many objects the process of the model has that may be in cycles; those that are, do not count."""
    gc.collect()
    return [len(gc.get_objects())] * len(xs)


@worker_ready.connect(weak=False)
def stop_collecting(**_: Any) -> None:
    """From now on what is in a cycle stays, also where a pause of the package's own ends."""
    gc.disable()
    gc.enable = lambda: None  # type: ignore[assignment]


@inspect_command()
def living(state: Any) -> int:
    """How many requests and batches the main process has."""
    return sum(isinstance(one, (BatchRequest, RunningBatch)) for one in gc.get_objects())


app = make_app(Site.from_environ())
