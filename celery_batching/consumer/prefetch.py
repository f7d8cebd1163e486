"""How many messages the worker holds: a full batch per slot and the next batch of each task, not more."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

from ..task import BatchTask

__all__ = ["Prefetch"]

logger = logging.getLogger(__name__)

#: Celery's default of ``worker_prefetch_multiplier``: any other value is the user's wish.
DEFAULT_MULTIPLIER = 4


class Prefetch:
    """Raises Celery's default prefetch as the tasks of this worker need it, or says why it cannot.

    It is the multiplier that is raised, so that what Celery derives from it (after a reconnect,
    when the pool grows, with quorum queues) stays right.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._asked = consumer.prefetch_multiplier
        # The pool has not started yet; this is how many slots Celery reckoned with.
        self._slots = consumer.initial_prefetch_count // self._asked if self._asked else 0
        self._sizes: dict[str, int] = {}

    def cover(self, tasks: Iterable[BatchTask]) -> None:
        """Make room for the batches of these tasks too."""
        self._sizes.update({task.name: task.batch_options.max_batch_size for task in tasks})
        if not self._sizes or not self._slots:
            return  # nothing to batch, or a prefetch without bound
        largest = max(self._sizes.values())
        wanted = math.ceil((self._slots * largest + sum(self._sizes.values())) / self._slots)
        if self._asked == DEFAULT_MULTIPLIER:
            self._raise_to(max(wanted, DEFAULT_MULTIPLIER))
        elif self._slots * self._asked < (self._slots + 1) * largest:
            logger.warning(
                "worker_prefetch_multiplier=%s lets this worker hold %s messages, so batches of %s cannot fill while "
                "one runs; leave the setting out (celery_batching raises Celery's default as needed) or set it to %s",
                self._asked,
                self._slots * self._asked,
                largest,
                wanted,
            )
        if self._consumer.app.conf.worker_disable_prefetch and largest > 1:
            logger.warning(
                "worker_disable_prefetch (--disable-prefetch) lets this worker hold %s messages, so batches of %s "
                "cannot fill; leave it out for the queues of batch tasks",
                self._slots,
                largest,
            )

    def _raise_to(self, multiplier: int) -> None:
        more = self._slots * (multiplier - self._consumer.prefetch_multiplier)
        self._consumer.prefetch_multiplier = multiplier
        self._consumer.initial_prefetch_count += more
        if self._consumer.qos is not None and more:  # consuming already
            self._consumer.qos.increment_eventually(more)
