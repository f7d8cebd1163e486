"""The Celery app and its tasks.

Start the worker with ``celery -A example_project.tasks worker -Q gpu --concurrency=1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery

from celery_batching import BatchTask
from example_project import settings
from example_project.model import encode, load_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Embed", "app", "embed", "embed_one"]

app = Celery("example_project", broker=settings.REDIS_URL, backend=settings.REDIS_URL)
app.conf.update(
    task_routes={"example_project.*": {"queue": settings.QUEUE}},
    result_expires=settings.RESULT_EXPIRES,
    broker_connection_retry_on_startup=True,
)


class Embed(BatchTask):
    """Text in, embedding out. Callers pass one text; the worker hands ``run`` all that are waiting."""

    name = "example_project.embed"
    max_batch_size = 32
    max_wait = 0.0
    expires = settings.ANSWER_TIMEOUT

    def setup(self) -> None:
        """Load the model, once per pool process and before the first call is taken."""
        self.model = load_model(self.device)

    def run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed a batch: one row per text, in the same order."""
        return encode(self.model, texts)


embed = app.register_task(Embed())


@app.task(name="example_project.embed_one", acks_late=True, expires=settings.ANSWER_TIMEOUT)
def embed_one(text: str) -> list[float]:
    """The same on plain Celery, for comparison: the same model object, run once per call."""
    vector: list[float] = encode(load_model(embed.device), [text])[0].tolist()
    return vector
