"""This project: the calls that wait are answered in one run."""

from __future__ import annotations

from benchmarks.apps.common import BATCH_SIZE, TASK, new_app
from benchmarks.model import Model
from celery_batching import BatchTask

app = new_app()
model = Model()


@app.task(name=TASK, base=BatchTask, max_batch_size=BATCH_SIZE)
def call(texts: list[str]) -> list[int]:
    """Answer a batch of texts."""
    return model.run(texts)
