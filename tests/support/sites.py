"""Opens sites on the servers of the test run, and knows what a test has left behind at each."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Collection
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from celery import Celery
from celery.backends.redis import RedisBackend
from celery.backends.rpc import RPCBackend

from tests.support.journal import Journal
from tests.support.rabbitmq_server import RabbitMQServer
from tests.support.redis_server import CLAIM, RedisServer
from tests.support.servers import Servers
from tests.support.site import Site

#: Keys that kombu keeps for good in a broker's database: who is bound to what.
BINDINGS = "_kombu.binding"

#: The end of the names of the lists on which answers to remote control arrive;
#: an answer that comes after the asker has left stays there.
ANSWERS = ".reply.celery.pidbox"

#: All keys that never expire, in one step: a key at a time cost the tests a fifth of their time.
LASTING = """
local lasting = {}
for _, key in ipairs(redis.call('keys', '*')) do
  if redis.call('ttl', key) == -1 then
    lasting[#lasting + 1] = key
  end
end
return lasting
"""


class Place(Protocol):
    """A broker or result backend, as far as one site uses it."""

    url: str

    def leftovers(self) -> list[str]:
        """What would stay there for ever, in words."""

    def purge(self) -> None:
        """Remove the leftovers."""

    def drop_connections(self, ports: Collection[int]) -> None:
        """Cut the connections from these client ports."""

    def close(self) -> None:
        """Leave nothing behind."""


class RedisDb:
    """A Redis database of one site; whatever its users leave there must expire."""

    def __init__(self, server: RedisServer) -> None:
        """Take an empty database."""
        self._server = server
        self._db = server.claim_db()
        self.url = server.url(self._db)
        self.client = server.client(self._db)

    def leftovers(self) -> list[str]:
        """The keys without expiry: waiting or unacked messages, results."""
        return [f"key {key}: {self.client.type(key)!s}" for key in self._lasting()]

    def purge(self) -> None:
        """Delete the keys without expiry, but not the bindings of living workers."""
        for key in self._lasting():
            self.client.delete(key)

    def drop_connections(self, ports: Collection[int]) -> None:
        """Cut the connections from these client ports to this database."""
        self._server.drop_connections(self._db, ports)

    def close(self) -> None:
        """Give the database back, empty."""
        self.client.close()
        self._server.release_db(self._db)

    def _lasting(self) -> list[str]:
        keys: Any = self.client.eval(LASTING, 0)
        return sorted(
            key for key in keys if key != CLAIM and not key.startswith(BINDINGS) and not key.endswith(ANSWERS)
        )


class RabbitMQQueue:
    """A queue of the RabbitMQ node, with those whose names begin like it."""

    def __init__(self, server: RabbitMQServer, queue: str) -> None:
        """Use that queue; Celery declares it."""
        self._server, self._queue = server, queue
        self.url = server.url

    def leftovers(self) -> list[str]:
        """The messages that are ready or unacked."""
        return self._server.leftovers(self._queue)

    def purge(self) -> None:
        """Drop the ready messages."""
        self._server.purge(self._queue)

    def drop_connections(self, ports: Collection[int]) -> None:
        """Close the connections from these client ports."""
        self._server.drop_connections(ports)

    def close(self) -> None:
        """Delete the queue."""
        self._server.delete(self._queue)


class Nowhere:
    """A result backend that needs no server of its own: rpc, or SQLite in a folder."""

    def __init__(self, url: str) -> None:
        """Use that backend."""
        self.url = url

    def leftovers(self) -> list[str]:
        """Nothing: rpc ends with the client, and rows are cleaned up by a periodic task."""
        return []

    def purge(self) -> None:
        """Nothing to do."""

    def drop_connections(self, ports: Collection[int]) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class LiveSite:
    """A site in use: its apps and journal in the test's process, and what was left at its places."""

    def __init__(self, site: Site, broker: Place, backend: Place) -> None:
        """Put the values and the places together."""
        self.site, self.broker, self.backend = site, broker, backend
        self._apps: dict[str, Celery] = {}

    @cached_property
    def journal(self) -> Journal:
        """The test's end of the journal."""
        return Journal(self.site)

    def app(self, name: str) -> Celery:
        """The client's instance of an app module of `tests.support.apps`."""
        if name not in self._apps:
            module = importlib.import_module(f"tests.support.apps.{name}")
            self._apps[name] = module.make_app(self.site)
        return self._apps[name]

    def leftovers(self) -> list[str]:
        """What the test has left: messages waiting or unacked, results that never expire."""
        return [*self.broker.leftovers(), *self.backend.leftovers()]

    def purge(self) -> None:
        """Remove what is left, so that the next test is not blamed for it."""
        self.broker.purge()
        self.backend.purge()

    def close(self) -> None:
        """Close the apps and leave nothing behind on the servers."""
        with ExitStack() as last:
            last.callback(self.backend.close)
            last.callback(self.broker.close)
            last.callback(self.close_client)

    def close_client(self) -> None:
        """Close what the test's own process has opened."""
        with ExitStack() as last:
            last.callback(self.journal.close)
            for app in self._apps.values():
                last.callback(close_app, app)


def open_site(
    servers: Servers,
    folder: Path,
    *,
    broker: str = "redis",
    backend: str = "redis",
    settings: dict[str, Any] | None = None,
    redis: RedisServer | None = None,
) -> LiveSite:
    """A new site with an empty queue: `broker` redis or rabbitmq, `backend` redis, rpc or sqlite.

    Both are on the servers of the run, or on the given Redis of a test's own.
    """
    own_or_shared = redis or servers.redis
    queue = f"tests.{secrets.token_hex(6)}"
    on_redis = broker == "redis"
    broker_place: Place = RedisDb(own_or_shared) if on_redis else RabbitMQQueue(servers.rabbitmq, queue)
    backends = {"rpc": "rpc://", "sqlite": f"db+sqlite:///{folder / queue}.sqlite"}
    backend_place = RedisDb(own_or_shared) if backend == "redis" else Nowhere(backends[backend])
    site = Site(
        broker_url=broker_place.url,
        backend_url=backend_place.url,
        queue=queue,
        journal_url=servers.journal_url,
        settings=settings or {},
    )
    return LiveSite(site, broker_place, backend_place)


def close_app(app: Celery) -> None:
    """Close what an app has opened in the client's process.

    But not its connections to the broker: kombu keeps them by URL for all apps of the process.
    """
    backend: Any = app.backend
    if isinstance(app.backend, RedisBackend):
        backend.result_consumer.stop()
        # Else a result that is collected later unsubscribes, on a new connection.
        backend.result_consumer._pubsub = None
        # Not `client.close()`, which leaves alone a pool that was given to the client.
        backend.client.connection_pool.disconnect()
    # It has a connection of its own, from the first call on.
    if isinstance(app.backend, RPCBackend) and backend.result_consumer._connection:
        backend.result_consumer.stop()
    app.close()
