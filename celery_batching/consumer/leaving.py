"""The end of a worker: what it has not begun with goes back to its queue at once, while what runs runs on.

Celery would keep it until the running batches have ended, since only then the channel closes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ..transport.redis import return_unread
from .request import BatchRequest, held_on

__all__ = ["Leaving"]

logger = logging.getLogger(__name__)

#: Seconds between two looks of the event loop at the flags that a signal sets. A loop with nothing to
#: do looks at them when its next timer is due, which may be in 10 s.
LOOK_S = 1.0


class Leaving:
    """What a worker does once, when it stops for good.

    Args:
        consumer: Celery's consumer.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._parked: list[BatchRequest] = []
        self._timer: Any = None
        self.began = False

    def watch(self) -> None:
        """Let the event loop notice soon that the worker is to end, or that its connection has ended."""
        self.unwatch()
        self._timer = self._consumer.timer.call_repeatedly(LOOK_S, self._look)

    def _look(self) -> None:
        # When an ack is the first to find the connection closed, kombu logs that and the socket is
        # gone from the loop, which would then wait for the next heartbeat, a minute or more.
        connection = self._consumer.connection
        if connection is not None and not connection.connected:
            raise ConnectionResetError("the connection was found closed while sending")

    def unwatch(self) -> None:
        """The event loop ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self) -> None:
        """Keep hold of what waits for its time or for a rate limit: Celery now forgets it."""
        self.began = True
        if self._consumer.task_consumer is not None:
            self._parked = held_on(self._consumer.task_consumer.channel)

    def return_waiting(self, running: Iterable[BatchRequest]) -> None:
        """Consume no more, and put back all that does not run.

        The last taken goes first, so that on Redis the first is the first of its queue again.
        """
        consumer = self._consumer
        if consumer.task_consumer is None:
            return
        stay = set(running)
        try:
            consumer.task_consumer.cancel()  # what was on its way comes in the meantime
            return_unread(consumer)
            waiting = [one for one in held_on(consumer.task_consumer.channel) if one not in stay]
            for request in waiting:
                request.give_back()
        except Exception as exc:  # the connection is lost, and the broker gives out again what it had
            logger.warning("Cannot return what waits, the end of the connection will: %r", exc)
        else:
            if waiting:
                logger.info("Returned %d waiting items to their queues", len(waiting))
        self._parked.clear()
