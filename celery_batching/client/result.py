"""The result of a lean call: waits for what this process is told, and is Celery's own in all else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from celery.exceptions import TimeoutError  # noqa: A004 - what Celery raises

from ._celery import StockResult, assert_will_not_block

if TYPE_CHECKING:
    from .replies import Arrival, Replies

__all__ = ["BatchResult"]

#: Seconds; who waits for less asks the backend, as in Celery.
LEAST_TIMEOUT_S = 0.05

#: The options of ``get`` that mean the same for what this process is told.
_LOCAL = {"interval", "no_ack", "follow_parents", "callback", "disable_sync_subtasks"}


class BatchResult(StockResult):  # type: ignore[misc]
    """What :meth:`BatchTask.delay` returns where broker and backend are Redis."""

    _arrival: Arrival | None = None
    _replies: Replies | None = None
    _listens = False  # whether Celery's own way of waiting was taken, which subscribes to the result

    def await_reply(self, arrival: Arrival, replies: Replies) -> None:
        """From now on the result may be waited for in this way."""
        self._arrival, self._replies = arrival, replies

    def get(self, timeout: float | None = None, propagate: bool = True, *args: Any, **options: Any) -> Any:
        """As ``AsyncResult.get``."""
        wanted = options and {name for name, value in options.items() if value is not None}
        fits = not args and (not wanted or wanted <= _LOCAL) and (timeout is None or timeout >= LEAST_TIMEOUT_S)
        arrival, replies = self._arrival, self._replies
        if arrival is None or replies is None or not replies.live or self._cache or self.parent or not fits:
            self._listens = True
            return super().get(timeout, propagate, *args, **options)
        if options.get("disable_sync_subtasks", True):
            assert_will_not_block()
        if not replies.wait(arrival, timeout):
            raise TimeoutError("The operation timed out.")
        return self.maybe_throw(propagate=propagate, callback=options.get("callback"))

    def _on_fulfilled(self, result: Any) -> Any:
        return super()._on_fulfilled(result) if self._listens else result

    def then(self, *args: Any, **kwargs: Any) -> Any:
        """As ``AsyncResult.then``."""
        self._listens = True
        return super().then(*args, **kwargs)

    def _get_task_meta(self) -> Any:
        """The state of the task: what has come, or else what is stored."""
        if self._cache is None and self._arrival is not None and self._arrival.stored is not None:
            return self._maybe_set_cache(self.backend.decode_result(self._arrival.stored))
        return super()._get_task_meta()

    def forget(self) -> None:
        """As ``AsyncResult.forget``."""
        self._arrival = None
        super().forget()

    def __del__(self) -> None:
        if self._listens:
            super().__del__()
