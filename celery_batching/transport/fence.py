"""Keeps a run that was declared dead from storing over the newer one; asked in the pool process."""

from __future__ import annotations

import dataclasses
import logging
import time
from typing import Any

import redis

__all__ = ["Fence"]

logger = logging.getLogger(__name__)

#: Seconds to wait for the broker's answer; without one the result is stored.
ANSWER_S = 3.0


@dataclasses.dataclass(frozen=True)
class Fence:
    """What a pool process needs to know of the lease under which its items are held.

    A worker that connects anew goes on with the same name unless others have taken what it held.
    Two fences with the same name are of one life of a worker: a delivery under the later one can
    be of an item that still runs under the earlier one.

    Args:
        worker: who holds the items.
        workers: the key of the workers that live.
        valid_until: moment of ``time.monotonic()``, which all processes of a host share, up to
            which nobody can have declared the worker dead.
    """

    worker: str
    workers: str
    valid_until: float

    def holds(self, app: Any) -> bool:
        """Whether the items are still the worker's; asks the broker only past ``valid_until``.

        Without an answer the result is taken for wanted: it is the same whoever stores it, and
        losing it would be worse.
        """
        if time.monotonic() < self.valid_until:
            return True
        try:
            return self._ask(app)
        except Exception as exc:  # whatever the broker's client raises, the result is wanted
            logger.warning("Cannot ask whether %s still holds its items: %r", self.worker, exc)
            return True

    def _ask(self, app: Any) -> bool:
        patience = {"socket_timeout": ANSWER_S, "socket_connect_timeout": ANSWER_S}
        with app.connection_for_read(transport_options=patience) as connection:
            connection.connect()  # tries once, unlike what the next line would do
            channel = connection.channel()
            client = redis.Redis(connection_pool=channel.pool)
            return client.zscore(self.workers, self.worker) is not None
