"""The servers of a test run, each started when the first test wants it."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import kombu.pools

from tests.support.missing import ServerMissingError, skip_or_fail
from tests.support.rabbitmq_server import RabbitMQServer
from tests.support.redis_server import RedisServer

Server = TypeVar("Server", RedisServer, RabbitMQServer)


class Servers:
    """One Redis and one RabbitMQ for this process of the test run; a missing one skips or fails."""

    def __init__(self, folder: Path) -> None:
        """Keep the servers' data under `folder`."""
        self._folder = folder
        self._started = ExitStack()

    @cached_property
    def redis(self) -> RedisServer:
        """The Redis server."""
        return self._start("redis", RedisServer)

    @cached_property
    def rabbitmq(self) -> RabbitMQServer:
        """The RabbitMQ node."""
        return self._start("rabbitmq", RabbitMQServer)

    @cached_property
    def journal_url(self) -> str:
        """The database of all journals."""
        db = self.redis.claim_db()
        self._started.callback(self.redis.release_db, db)
        return self.redis.url(db)

    def close(self) -> None:
        """Close the clients' connections, then end the servers that were started."""
        kombu.pools.reset()
        self._started.close()

    def _start(self, name: str, kind: type[Server]) -> Server:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        try:
            return self._started.enter_context(kind.for_tests(folder))
        except ServerMissingError as error:
            skip_or_fail(str(error))
