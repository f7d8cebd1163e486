"""A consumer on a Redis broker in the test's own process, as a worker has one; and looks at what is held."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Barrier
from typing import Any

import redis
from kombu import Connection, Consumer, Producer, Queue
from kombu.message import Message

from celery_batching.transport.ledger import Ledger
from celery_batching.transport.redis import Leasing, lease_connection
from celery_batching.transport.scripts import Keys
from tests.support.waiting import PATIENCE_S, wait_until

#: kombu's own names.
KEYS = Keys(prefix="", unacked="unacked", index="unacked_index")


@contextmanager
def leased(url: str, *, seconds: float = 10.0, **transport_options: Any) -> Iterator[Connection]:
    """A connection that holds its messages under a lease."""
    with Connection(url, transport_options=transport_options) as connection:
        lease_connection(connection, Leasing("tests", seconds))
        yield connection


@contextmanager
def stock(url: str, **transport_options: Any) -> Iterator[Connection]:
    """Kombu's own, as a stock worker has it."""
    with Connection(url, transport_options=transport_options) as connection:
        yield connection


class Inbox:
    """Consumes from queues of a connection; nothing is acked unless the test does."""

    def __init__(self, connection: Connection, *queues: str, prefetch: int = 0, no_ack: bool = False) -> None:
        """Begin to consume."""
        self._connection = connection
        self.messages: list[Message] = []
        self.channel: Any = connection.default_channel
        wanted = [Queue(name, routing_key=name) for name in queues]
        self.consumer = Consumer(self.channel, wanted, on_message=self.messages.append, no_ack=no_ack)
        self.consumer.qos(prefetch_count=prefetch)
        self.consumer.consume()

    @property
    def bodies(self) -> list[Any]:
        """What the messages say, in the order of their arrival."""
        return [message.payload for message in self.messages]

    def wait_for(self, count: int, timeout: float = PATIENCE_S) -> list[Message]:
        """The messages, when there are so many."""
        wait_until(lambda: self.look() >= count, f"{count} messages arrive", timeout, saw=lambda: self.bodies)
        return self.messages

    def look(self, timeout: float = 0.05) -> int:
        """Let the connection work for a moment; how many messages have arrived."""
        with suppress(socket.timeout):  # nothing has come
            self._connection.drain_events(timeout=timeout)
        return len(self.messages)


def publish(url: str, queue: str, *bodies: Any, priority: int = 0, **transport_options: Any) -> None:
    """Send messages to a queue as a stock client does."""
    with Connection(url, transport_options=transport_options) as connection:
        producer = Producer(connection.default_channel)
        for body in bodies:
            producer.publish(body, routing_key=queue, priority=priority, declare=[Queue(queue, routing_key=queue)])


class Record:
    """What the broker has noted, seen from outside."""

    def __init__(self, client: redis.Redis, keys: Keys = KEYS) -> None:
        """Look with a client that decodes."""
        self.client, self.keys = client, keys
        self.unacked_key, self.index_key, self.held_key, self.leases_key, *_ = keys.all()

    @cached_property
    def _binary(self) -> redis.Redis:
        kwargs = {**self.client.connection_pool.connection_kwargs, "decode_responses": False}
        return redis.Redis(connection_pool=redis.ConnectionPool(**kwargs))

    @property
    def unacked(self) -> set[str]:
        """The tags of the unacked messages."""
        return set(self.client.hkeys(self.unacked_key))

    @property
    def scores(self) -> dict[str, float]:
        """When each unacked message was delivered, or refreshed."""
        return dict(self.client.zrange(self.index_key, 0, -1, withscores=True))

    @property
    def holders(self) -> dict[str, str]:
        """The holder of each held tag."""
        return {tag: value.partition(" ")[2] for tag, value in self.client.hgetall(self.held_key).items()}

    @property
    def living(self) -> list[str]:
        """The holders with a lease."""
        return list(self.client.zrange(self.leases_key, 0, -1))

    def ledger(self, visibility_s: float = 3600.0) -> Ledger:
        """To act on it as a worker does; with a connection for each thread that uses it."""
        return Ledger(self._binary, self.keys, visibility_s)

    def close(self) -> None:
        """Close the connections of the ledger."""
        self._binary.connection_pool.disconnect()


def in_threads(count: int, work: Callable[[], Any]) -> Sequence[Any]:
    """Do the same in several threads at once; what each returned."""
    start = Barrier(count)

    def together(_: int) -> Any:
        start.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(together, range(count)))
