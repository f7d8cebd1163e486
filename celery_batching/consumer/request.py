"""Celery's request of one item, where being part of a batch makes a difference."""

from __future__ import annotations

from typing import Any

from .._celery_internals import Request, signal_number
from ..pool.item import terminated_here

__all__ = ["BatchRequest"]


class BatchRequest(Request):
    """A request that can be terminated also where nothing can be killed."""

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Revoke this item while its batch runs; the others of the batch succeed.

        On prefork the process is killed, as in Celery, and the others run again. Where the pool
        cannot kill, the run goes on for the others and this item's result is dropped.
        """
        try:
            super().terminate(pool, signal)
        except NotImplementedError:
            terminated_here.add(self.id)
            self._announce_revoked(  # type: ignore[attr-defined]
                "terminated", True, signal_number(signal), False
            )
