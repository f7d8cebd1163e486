"""celery-batches 0.11, in an environment of its own: it needs a Celery older than this project's newest."""

from __future__ import annotations

import os

from celery_batches import Batches, SimpleRequest

from benchmarks.apps.common import BATCH_SIZE, TASK, new_app
from benchmarks.model import Model

#: Seconds between two flushes of a batch that is not full. Its default of 30 s is for other uses
#: than callers that wait: a lone caller waits for as long. The shorter, the smaller the batches.
FLUSH_INTERVAL_S = float(os.environ.get("BENCHMARKS_FLUSH_INTERVAL_S", "0.01"))

# Room for the batch that runs and the one that fills, as its manual asks for.
app = new_app(worker_prefetch_multiplier=2 * BATCH_SIZE)
model = Model()


@app.task(name=TASK, base=Batches, flush_every=BATCH_SIZE, flush_interval=FLUSH_INTERVAL_S, acks_late=True)
def call(requests: list[SimpleRequest]) -> None:
    """Answer a batch of texts; storing the answers is the part of the task."""
    for request, answer in zip(requests, model.run(request.args[0] for request in requests), strict=True):
        app.backend.mark_as_done(request.id, answer, request=request)
