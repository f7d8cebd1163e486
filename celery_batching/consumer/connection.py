"""Gives the worker a connection that holds its messages under a lease, where its broker is Redis."""

from __future__ import annotations

import os
from typing import Any

from ..options import WorkerOptions
from ..transport.redis import Leasing, lease_connection

__all__ = ["lease_connections"]


def lease_connections(consumer: Any) -> None:
    """Let each connection on which the worker consumes from now on use leases.

    Raises:
        OptionError: the lease is no number of seconds.
    """
    app = consumer.app
    options = WorkerOptions.resolve({}, os.environ, app.conf)
    leasing = Leasing(consumer.hostname, options.lease)

    def connection_for_read(heartbeat: Any = None) -> Any:
        connection = app.connection_for_read(heartbeat=heartbeat)
        lease_connection(connection, leasing)
        return consumer.ensure_connected(connection)

    consumer.connection_for_read = connection_for_read
