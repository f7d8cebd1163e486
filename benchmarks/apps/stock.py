"""Stock Celery: one run of the model per call. Late acks, as the batching systems have: the same promise."""

from __future__ import annotations

from benchmarks.apps.common import TASK, new_app
from benchmarks.model import Model

app = new_app()
model = Model()


@app.task(name=TASK, acks_late=True)
def call(text: str) -> int:
    """Answer one text."""
    return model.run([text])[0]
