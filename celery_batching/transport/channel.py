"""A worker's channel on Redis: pops messages under its lease, and returns them when it ends.

Checked on kombu 5.7.0.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from queue import Empty
from typing import Any, NamedTuple

import redis

from ..collector import collector_paused
from ._kombu import kombu_redis, round_robin_cycle, virtual_channel
from .asking import MOST_MESSAGES, Asking, Question, State
from .lease import Lease, Past
from .ledger import Ledger, Push
from .messages import BadMessageError, Message, Pushes, loaded, report_junk, unacked_parts
from .qos import QoS
from .scripts import Keys

__all__ = ["Channel", "LeaseLostError", "SentinelChannel"]

logger = logging.getLogger(__name__)

#: Seconds for one answer to the lease's own connection, at least: a share of the lease otherwise.
LEAST_PATIENCE_S = 0.5

#: By broker and the name of its unacked messages.
_pasts: defaultdict[str, Past] = defaultdict(Past)


class LeaseLostError(redis.ConnectionError):
    """The worker stood still for too long; what it held is another's. It must connect again."""


class _Arrived(NamedTuple):
    queue: str
    tag: str
    raw: bytes
    payload: Any
    """The message, or the BadMessageError that says why it is none."""


#: Each class below adds the one of kombu's that stands behind ``super()`` here.
_Base: Any = object


class Leased(_Base):  # type: ignore[misc]
    """What is different from kombu's channel; it stands before that class, for plain Redis or Sentinel.

    Only a channel that consumes from lists takes a lease, with its first question.
    """

    QoS = QoS
    Message = Message

    _in_poll: Any
    _brpop_sent_at: Any
    _sentinel_manager: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.lease: Any = None
        self._thread = threading.local()
        self._no_ack: set[str] = set()
        self._arrived: deque[_Arrived] = deque()
        self._asked: Sequence[str] = ()
        self._answer_lost = False
        super().__init__(*args, **kwargs)
        self._keys = Keys(prefix=self.global_keyprefix, unacked=self.unacked_key, index=self.unacked_index_key)
        self._ledger = Ledger(self._raw_client(self.pool), self._keys, self.visibility_timeout)
        self._asking = Asking(self._keys, self._ledger.expiry_s)

    # Asking for messages

    def wake(self) -> None:
        """Before each look of the poller: send the acks of this turn, and go on where nothing else makes it go on."""
        if self.lease is not None:
            if self.lease.lost:
                self._give_up()
            self.lease.send_acks()
        if self._answer_lost:
            raise redis.ConnectionError("The connection broke before an answer came, which may have had messages")
        if self._in_poll and self.qos.can_consume():
            self._deliver_arrived()
            if self._asking.is_due(self.brpop_timeout or 1):
                self._in_poll = None  # then the poller calls _brpop_start

    def _brpop_start(self, timeout: float | None = None) -> None:  # noqa: ARG002 - kombu's signature
        self._flush_brpop_reauth()
        queues = self._queue_cycle.consume(len(self.active_queues))
        if not queues:
            return
        if self.lease is None:
            self._begin_lease()
        self._asked = [self._q_for_pri(queue, priority) for priority in self.priority_steps for queue in queues]
        question = Question(
            self.lease.holder,
            self._room(),
            [self._keys.of(key) for key in self._asked],
            len(queues),
            type(self._queue_cycle).rotate is round_robin_cycle.rotate,  # the others inherit from it
        )
        connection = self.client.connection
        self._asking.send(connection, question)
        self._in_poll = connection
        self._brpop_sent_at = time.monotonic()

    def _brpop_read(self, **options: Any) -> bool:  # noqa: ARG002 - kombu's signature
        with collector_paused:
            if self._read_answer():
                self._deliver_arrived()
                return True
            if self._asking.state is State.WAITING:
                with self._burst():
                    pass  # nothing has come, and those who waited for more need not
        raise Empty

    def _read_answer(self) -> bool:
        """Whether messages have come."""
        connection = self.client.connection
        try:
            answer = self._asking.read(connection)
        except self.connection_errors:
            connection.disconnect()
            raise
        finally:
            self._brpop_sent_at = None
        if answer is None:
            return False
        if answer.lost:
            self._give_up()
        for number, raw in answer.junk:
            report_junk(self._asked[number], raw)
        tags = [tag for _, tag, _ in answer.messages]
        payloads = loaded([raw for _, _, raw in answer.messages], tags)
        for (number, _, raw), tag, payload in zip(answer.messages, tags, payloads, strict=True):
            queue = self._asked[number].rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._arrived.append(_Arrived(queue, tag, raw, payload))
        return bool(answer.messages)

    def return_unread(self) -> None:
        """Nothing is consumed any more: put back what was asked for and has not reached its consumer."""
        if self._in_poll and self._asking.state is State.ASKED:
            self._read_answer()
        while self._arrived:  # each before all others of its queue, so the first goes last
            self._deliver(*self._arrived.pop())

    def _on_connection_disconnect(self, connection: Any) -> None:
        # kombu would quietly connect again; but what the answer brought is held here, and returned
        # when the channel closes.
        if self._in_poll is connection and self._asking.state is State.ASKED:
            self._answer_lost = True
        super()._on_connection_disconnect(connection)

    def _give_up(self) -> None:
        logger.warning("%s was declared dead: what it held has gone back to its queues", self.lease.holder)
        raise LeaseLostError(f"{self.lease.holder} was declared dead")

    def _room(self) -> int:
        # Celery puts a count of its own there (worker_disable_prefetch), which each message changes.
        if "can_consume" in vars(self.qos):
            return 1
        room: int | None = self.qos.can_consume_max_estimate()
        return MOST_MESSAGES if room is None else max(room, 1)

    def _deliver_arrived(self) -> None:
        """Give them to their consumers; where one raises, the others come with the next look."""
        if not self._arrived:
            return
        with self._burst():
            while self._arrived:
                self._deliver(*self._arrived.popleft())

    def _burst(self) -> AbstractContextManager[None]:
        burst: AbstractContextManager[None] = self.connection.client.leasing.burst(self._asking.state is State.WAITING)
        return burst

    def _deliver(self, queue: str, tag: str, raw: bytes, payload: Any) -> None:
        self.qos.popped(tag)
        if queue not in self._active_queues:  # cancelled since it was asked for
            self.qos.reject(tag, requeue=True)
            return
        if queue in self._no_ack:
            self.qos.ack(tag)
        try:
            if isinstance(payload, BadMessageError):
                raise payload
            self.connection._deliver(payload, queue)
        except BadMessageError:
            report_junk(queue, raw)
            self.qos.ack(tag)

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        """As kombu's; the pop must know who never acks."""
        if no_ack:
            self._no_ack.add(queue)
        else:
            self._no_ack.discard(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    # The lease

    def _begin_lease(self) -> None:
        settings = self.connection.client.leasing
        pool = self._own_pool(settings.seconds)
        self.lease = Lease(
            settings.node,
            settings.seconds,
            self._ledger,
            dataclasses.replace(self._ledger, client=self._raw_client(pool)),
            self._route,
            _pasts[f"{self.connection.client.as_uri()} {self._keys.all()[0]}"],
            on_event_loop=self.connection.on_event_loop,
        )

    def end_lease(self) -> None:
        """Return what is held. Never raises, and does nothing the second time."""
        if self.lease is not None:
            self.lease.end()

    def _own_pool(self, seconds: float) -> Any:
        """Connections that give up soon, so that a half-open one does not cost the lease."""
        manager = self._sentinel_manager
        pool = self._get_pool()
        self._sentinel_manager = manager or self._sentinel_manager
        patience = max(seconds / 5, LEAST_PATIENCE_S)
        pool.connection_kwargs.update(socket_timeout=patience, socket_connect_timeout=patience)
        return pool

    def _raw_client(self, pool: Any) -> redis.Redis:
        """Without the prefixes of kombu's, which reach only the first key of a script."""
        return redis.Redis(connection_pool=pool)

    def _route(self, client: redis.Redis, value: bytes, last: bool) -> Sequence[Push]:
        parts = unacked_parts(value)
        if parts is None:
            return ()
        pushes = Pushes()
        self._thread.client = self.Client(connection_pool=client.connection_pool)
        try:
            self._do_restore_message(*parts, pushes, last)
        finally:
            self._thread.client = None
        return pushes.made

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """As kombu's, but on the lease's thread with the lease's connections."""
        with super().conn_or_acquire(client or getattr(self._thread, "client", None)) as found:
            yield found

    def _connparams(self, asynchronous: bool = False) -> Any:
        params = super()._connparams(asynchronous=asynchronous)
        if asynchronous:
            params["protocol"] = 3  # in which the server tells of new messages between two answers
        return params

    # The end

    def close(self) -> None:
        """As kombu's, but the state of the connection does not matter."""
        if not self.closed:
            self.end_lease()
            # What an unread answer brought was returned with the rest, or is refused to a dead holder.
            self._in_poll = None
            self._arrived.clear()
        try:
            super().close()
        except self.connection_errors as exc:
            logger.debug("The connection was lost before its channel was closed: %r", exc)
            self._disconnect_pools()
            self._close_clients()
            virtual_channel.close(self)


class Channel(Leased, kombu_redis.Channel):  # type: ignore[misc]
    """For plain Redis."""


class SentinelChannel(Leased, kombu_redis.SentinelChannel):  # type: ignore[misc]
    """For Redis behind Sentinel."""
