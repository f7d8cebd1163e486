"""Acks and rejects of what the pop has recorded: they act only while it is still this worker's."""

from __future__ import annotations

import logging
from typing import Any

from ._kombu import kombu_redis, virtual_qos

__all__ = ["QoS"]

logger = logging.getLogger(__name__)


class QoS(kombu_redis.QoS):  # type: ignore[misc]
    """kombu's, for messages that the pop has already recorded as unacked.

    Messages that came another way (broadcasts, ``basic_get``) are treated as kombu does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held: dict[str, int] = {}  # how often each tag was delivered and is not settled

    def popped(self, tag: str) -> None:
        """The pop has recorded a message with this tag for this channel."""
        self._held[tag] = self._held.get(tag, 0) + 1

    def append(self, message: Any, delivery_tag: Any) -> None:
        """A message goes to its consumer."""
        if str(delivery_tag) in self._held:
            virtual_qos.append(self, message, delivery_tag)
        else:
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: Any) -> None:
        """Never raises for a lost connection: the ack is kept and sent later.

        On an event loop it goes out with all others of the loop's turn.
        """
        if self._let_go(delivery_tag):
            self.channel.lease.ack(str(delivery_tag))
            virtual_qos.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        """Drop a message, or put it back on its queue.

        It goes behind all others, as in kombu, so that it does not come straight back; but a worker
        that takes no more of them returns it to where it was.
        """
        if not self._let_go(delivery_tag):
            super().reject(delivery_tag, requeue=requeue)
            return
        if requeue:
            self.channel.lease.requeue(str(delivery_tag), last=bool(self.channel._active_queues))
        else:
            self.channel.lease.ack(str(delivery_tag))
        virtual_qos.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Return what is unacked, while the channel goes on."""
        for tag in list(self._delivered):
            if self._let_go(tag):
                self.channel.lease.requeue(str(tag), last=True)
                self._delivered.pop(tag, None)
        super().restore_unacked(client)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """At the end of the channel, or of a process that has not closed it: the lease returns what it held.

        Tags stay in ``_held``, so that an ack that comes after this does nothing.
        """
        self.channel.end_lease()
        for tag in list(self._delivered):
            if str(tag) in self._held:
                self._delivered.pop(tag, None)
        try:
            super().restore_unacked_once(stderr)
        except Exception as exc:  # kombu lets a dead connection's error end the worker here
            logger.warning("Cannot return unacked messages now: %r", exc)

    def _let_go(self, tag: Any) -> bool:
        count = self._held.pop(str(tag), 0)
        if count > 1:
            self._held[str(tag)] = count - 1
        return count > 0
