"""kombu's Redis transports with leases, and how a worker's connection comes to use one.

Checked on kombu 5.7.0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from ._kombu import kombu_redis, missing_names
from .channel import Channel, Leased, SentinelChannel
from .fence import Fence
from .lease import Lease

__all__ = [
    "Leasing",
    "SentinelTransport",
    "Transport",
    "fence_of",
    "lease_connection",
    "life_of",
    "missing_names",
    "return_unread",
]


@dataclasses.dataclass(frozen=True)
class Leasing:
    """What the channels of a worker's connection need to know.

    Args:
        node: the worker's name, for people to read.
        seconds: how long the worker may stand still before others take what it holds.
        burst: entered around the delivery of messages that came together; told whether the broker has no more.
    """

    node: str
    seconds: float
    burst: Callable[[bool], AbstractContextManager[Any]] = nullcontext


class Poller(kombu_redis.MultiChannelPoller):  # type: ignore[misc]
    """Looks after channels whose connection stays quiet between two messages."""

    def on_poll_start(self) -> None:
        """Before each look."""
        for channel in tuple(self._channels):
            channel.wake()
        super().on_poll_start()


class Transport(kombu_redis.Transport):  # type: ignore[misc]
    """For plain Redis."""

    Channel = Channel
    on_event_loop = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = Poller()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """From here on each turn of the loop begins with ``Poller.on_poll_start``."""
        self.on_event_loop = True
        super().register_with_event_loop(connection, loop)

    def close_connection(self, connection: Any) -> None:
        """As kombu's, which leaves the other channels alone when the end of one raises."""
        for channel in (*self._avail_channels, *self.channels):
            channel.end_lease()
        super().close_connection(connection)


class SentinelTransport(Transport):
    """For Redis behind Sentinel."""

    default_port = kombu_redis.SentinelTransport.default_port
    Channel = SentinelChannel


_LEASED = {kombu_redis.Transport: Transport, kombu_redis.SentinelTransport: SentinelTransport}


def lease_connection(connection: Any, leasing: Leasing) -> None:
    """Let a connection use our transport wherever it would use kombu's own for Redis.

    It is asked for its class each time it makes a transport, also after a failover to another of
    its URLs. Other transports, also subclasses of kombu's, and Redis without acks stay as they are.
    """
    if connection.transport_options.get("ack_emulation", True):
        connection.leasing = leasing
        connection.get_transport_cls = partial(_leased, connection.get_transport_cls)


def _leased(stock: Any) -> Any:
    cls = stock()
    return _LEASED.get(cls, cls)


def life_of(consumer: Any) -> str | None:
    """The worker's name at its broker, which ends when others take what it held; None without leases."""
    lease = _lease_of(consumer)
    return None if lease is None else lease.worker


def return_unread(consumer: Any) -> None:
    """Put back what the cancelled consumer has asked for and not seen; nothing to do without leases."""
    channel = consumer.task_consumer.channel
    if isinstance(channel, Leased) and channel.lease is not None:
        channel.return_unread()


def fence_of(consumer: Any) -> Fence | None:
    """The fence of what the worker holds now; None on brokers without leases."""
    lease = _lease_of(consumer)
    return None if lease is None else lease.fence


def _lease_of(consumer: Any) -> Lease | None:
    channel = getattr(consumer.task_consumer, "channel", None)
    return channel.lease if isinstance(channel, Leased) else None
