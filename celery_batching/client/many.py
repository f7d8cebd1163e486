"""Many calls at once: all of them are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from celery.result import AsyncResult, ResultSet

from .choice import client_of

if TYPE_CHECKING:
    from ..task import BatchTask

__all__ = ["BatchResults", "send_many"]


class BatchResults(ResultSet):
    """What :meth:`BatchTask.delay_many` returns: the results of many calls, in their order."""

    def __init__(self, results: Sequence[AsyncResult[Any]], app: Any) -> None:
        super().__init__([], app=app)  # it would subscribe to each of them
        self.results = list(results)

    @property
    def supports_native_join(self) -> bool:
        """Each is waited for in its own way."""
        return False

    def then(self, *args: Any, **kwargs: Any) -> Any:
        """As ``ResultSet.then``."""
        return ResultSet(self.results, app=self.app).then(*args, **kwargs)


def send_many(task: BatchTask, calls: Sequence[tuple[Any, ...]], options: dict[str, Any]) -> ResultSet:
    """Send the calls, in one round trip where they can be lean, else over one connection.

    Raises:
        TypeError: the arguments of one do not fit, or an option is for one call; nothing is sent.
    """
    if options.get("task_id") is not None:
        raise TypeError(f"{task.name}.apply_async_many() sends many calls, and task_id names one")
    if task.typing:
        for args in calls:
            task.columns.row(args, {})
    client = client_of(task, options)
    if client is not None:
        with client.together():
            results = [task.apply_async(args, **options) for args in calls]
    elif task.app.conf.task_always_eager or "producer" in options:
        results = [task.apply_async(args, **options) for args in calls]
    else:
        with task.app.producer_or_acquire() as producer:
            results = [task.apply_async(args, producer=producer, **options) for args in calls]
    return BatchResults(results, task.app)
