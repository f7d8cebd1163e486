"""One call of a task, as its caller gave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from celery.result import AsyncResult

    from ..task import BatchTask

__all__ = ["Call"]


class Call(NamedTuple):
    """What ``apply_async`` was given, but for the id and the producer.

    Attributes:
        task: it is called.
        by_celery: Celery's ``apply_async`` of the task.
    """

    task: BatchTask
    by_celery: Callable[..., AsyncResult[Any]]
    args: Any
    kwargs: Any
    options: dict[str, Any]

    @property
    def ignores_result(self) -> bool:
        """Whether nothing is stored."""
        return bool(self.options.get("ignore_result", self.task.ignore_result))

    def send(self, **options: Any) -> AsyncResult[Any]:
        """Send it in Celery's way."""
        return self.by_celery(self.args, self.kwargs, **options, **self.options)
