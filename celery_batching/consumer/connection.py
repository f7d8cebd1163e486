"""The worker's connection to its broker: under a lease on Redis, made anew after a consumer timeout of RabbitMQ."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any

from ..transport.redis import Leasing, lease_connection, missing_names

__all__ = ["lease_connections", "outlive_consumer_timeout"]

logger = logging.getLogger(__name__)

#: What RabbitMQ says of a delivery that was not acknowledged in time.
_TIMED_OUT = ("delivery acknowledgement on channel", "timed out")


def lease_connections(consumer: Any, lease_s: float, burst: Callable[[bool], AbstractContextManager[None]]) -> None:
    """Let each connection on which the worker consumes from now on use leases.

    Args:
        consumer: Celery's consumer, before it starts.
        lease_s: seconds the worker may stand still before others take what it holds.
        burst: entered around the delivery of messages that came together; told whether they were the last ones.
    """
    missing = missing_names()
    if missing:
        logger.warning(
            "kombu %s has no %s: on Redis messages are taken one by one, as by any Celery worker, and without a lease",
            version("kombu"),
            ", ".join(missing),
        )
        return
    leasing = Leasing(consumer.hostname, lease_s, burst)

    def connection_for_read(heartbeat: Any = None) -> Any:
        connection = consumer.app.connection_for_read(heartbeat=heartbeat)
        lease_connection(connection, leasing)
        return consumer.ensure_connected(connection)

    consumer.connection_for_read = connection_for_read


def outlive_consumer_timeout(consumer: Any) -> None:
    """Let the worker connect again when RabbitMQ has closed the channel over a late ack.

    Celery would end, as over any error of a channel. A slow batch, or an item that waits for its
    ETA, is no reason to: its message comes again and has its end then.
    """
    loop = consumer.loop

    @functools.wraps(loop)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return loop(*args, **kwargs)
        except consumer.channel_errors as exc:
            if not all(words in str(exc) for words in _TIMED_OUT):
                raise
            raise ConnectionError(str(exc)) from exc

    consumer.loop = guarded
