"""What the apps share: servers, queue and the size of a batch. Imports nothing but Celery."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

__all__ = ["BATCH_SIZE", "BATCH_SIZE_VARIABLE", "QUEUE", "STAGED", "TASK", "URL_VARIABLE", "new_app"]

#: The server, without the number of a database.
URL_VARIABLE = "BENCHMARKS_REDIS"

#: The queue that workers consume.
QUEUE = "bench"

#: A queue that nobody consumes: a backlog is put there, and becomes QUEUE in one step.
STAGED = "bench.staged"

TASK = "benchmarks.call"

#: The environment variable with the most items in a batch, for every system that has batches.
BATCH_SIZE_VARIABLE = "BENCHMARKS_BATCH_SIZE"

BATCH_SIZE = int(os.environ.get(BATCH_SIZE_VARIABLE, "64"))


def new_app(**settings: Any) -> Celery:
    """An app with broker and result backend in two databases of one server, and Celery's defaults in all else."""
    url = os.environ.get(URL_VARIABLE, "redis://127.0.0.1:6379")
    app = Celery("benchmarks", broker=f"{url}/0", backend=f"{url}/1")
    app.conf.update(task_default_queue=QUEUE, broker_connection_retry_on_startup=True, **settings)
    return app
