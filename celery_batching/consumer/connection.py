"""Gives the worker a connection that holds its messages under a lease, where its broker is Redis."""

from __future__ import annotations

from typing import Any

from ..transport.redis import Leasing, lease_connection

__all__ = ["lease_connections"]


def lease_connections(consumer: Any, lease_s: float) -> None:
    """Let each connection on which the worker consumes from now on use leases.

    Args:
        consumer: Celery's consumer, before it starts.
        lease_s: seconds the worker may stand still before others take what it holds.
    """
    leasing = Leasing(consumer.hostname, lease_s)

    def connection_for_read(heartbeat: Any = None) -> Any:
        connection = consumer.app.connection_for_read(heartbeat=heartbeat)
        lease_connection(connection, leasing)
        return consumer.ensure_connected(connection)

    consumer.connection_for_read = connection_for_read
