"""Moves Celery's line about each succeeded item of a batch from INFO to DEBUG; the batch has its own."""

from __future__ import annotations

import logging

from .._celery_internals import success_line
from .item import current_item

__all__ = ["quiet_item_logs"]

_celery_logger = logging.getLogger("celery.app.trace")


def quiet_item_logs() -> None:
    """Install the filter in this process; calling it again changes nothing."""
    _celery_logger.addFilter(_demote)  # logging ignores a filter it has already


def _demote(record: logging.LogRecord) -> bool:
    item = current_item.get()
    if item is None or not success_line(record, item.id):
        return True
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return _celery_logger.isEnabledFor(logging.DEBUG)
