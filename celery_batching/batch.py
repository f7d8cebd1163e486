"""What ``self.batch`` is inside ``run``: the items of the running batch, and retries for some of them."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Sequence
from typing import Any

from celery.exceptions import Retry

__all__ = ["Batch", "RetryEntry"]


class RetryEntry(Retry):
    """In place of a result: retry this item. Made by :meth:`Batch.retry`."""

    def __init__(
        self,
        exc: Exception | None = None,
        when: float | datetime.datetime | None = None,
        **options: Any,
    ) -> None:
        super().__init__(exc=exc, when=when)  # type: ignore[arg-type]  # the stubs know no float
        self.cause = exc  # Retry keeps a picklable copy of it, which may be of another class
        self.options = options


class Batch:
    """The batch that ``run`` is running; ``self.batch`` in a bound task.

    Attributes:
        requests: Celery's request context of each item, in the order of the columns (retries,
            headers, expires, delivery_info and so on).
        reason: why the batch left: ``"full"``, ``"wait"``, ``"idle"`` or ``"split"``.
    """

    def __init__(self, items: Sequence[Any], reason: str) -> None:
        self._items = items
        self.reason = reason

    @functools.cached_property
    def requests(self) -> list[Any]:
        """Made when they are first asked for."""
        return [item.request for item in self._items]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} reason={self.reason}>"

    @property
    def ids(self) -> list[str]:
        """The task id of each item."""
        return [request.id for request in self.requests]

    def retry(
        self,
        exc: Exception | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> RetryEntry:
        """An entry that retries its item, for the place of its result in what ``run`` returns.

        The item's new message is sent with its own count of retries, and may join a later batch.
        Exhausted, it fails with ``exc``, else with MaxRetriesExceededError, as in Celery.

        Args:
            exc: what the item fails with when its retries are used up.
            countdown: seconds until the retry; by default the task's ``default_retry_delay``.
            max_retries: overrides the task's limit for this item.
            **options: passed on to ``Task.retry``, such as ``eta`` or ``queue``.
        """
        eta = options.pop("eta", None)
        return RetryEntry(exc, countdown if eta is None else eta, max_retries=max_retries, **options)
