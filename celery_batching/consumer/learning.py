"""What the main process learns of a batch that ran out of memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..core.items import Reason
from .intake import key_of

if TYPE_CHECKING:
    from ..core.ceilings import Ceilings
    from ..pool.messages import BatchReport
    from .settle import RunningBatch

__all__ = ["learn"]

logger = logging.getLogger(__name__)


def learn(ceilings: Ceilings, batch: RunningBatch, report: BatchReport) -> None:
    """Remember what fits into memory."""
    if batch.reason is Reason.SPLIT:
        return
    key, size = key_of(batch.requests[0]), len(batch.requests)
    if report.fitted is None:
        ceilings.did_fit(key, size, batch.task.batch_options.max_batch_size)
    elif report.fitted < size:
        cap = ceilings.did_not_fit(key, size, report.fitted)
        logger.warning("Out of memory with %d items of %s; batches of at most %d for now", size, batch.task.name, cap)
