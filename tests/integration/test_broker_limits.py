"""What RabbitMQ bounds by itself: how long a delivery may stay unacked, and how often a message is delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from celery.exceptions import TimeoutError as GivenUpError
from kombu import Connection, Queue

from tests.integration.test_outage import BACK_S, runs_of
from tests.support.apps.outage import QUORUM, REDELIVERIES
from tests.support.busy import busy, wait_for_waiting
from tests.support.rabbitmq_server import RabbitMQServer
from tests.support.servers import Servers
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]

#: Milliseconds: how long a delivery may stay unacked, and how often the node looks (by default half an hour and a
#: minute).
TIMEOUT_MS, LOOK_MS = 2000, 250


@pytest.fixture
def impatient(servers: Servers) -> Iterator[RabbitMQServer]:
    """The node, which closes the channel of a delivery that is not acked soon, where it was opened meanwhile."""
    node = servers.rabbitmq
    values = {"consumer_timeout": (TIMEOUT_MS, 1800000), "channel_tick_interval": (LOOK_MS, 60000)}
    for name, (short, _) in values.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {short})")
    yield node
    for name, (_, usual) in values.items():
        node.evaluate(f"application:set_env(rabbit, {name}, {usual})")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_the_worker_outlives_the_consumer_timeout(
    impatient: RabbitMQServer, start_worker: WorkerFixture, pool: str
) -> None:
    """A slow batch and parked items exceed it again and again: the worker connects anew, each item runs once (41)."""
    worker = start_worker("outage", pool=pool, broker="rabbitmq")
    pid, double = worker.pid, worker.task("double")

    with busy(worker, double) as running:
        parked = [double.apply_async((x,), countdown=6) for x in (1, 2)]
        worker.wait_for(lambda: worker.log().count("Connected to") > 2, "it has been cut off twice", BACK_S)
    assert 0 == running.get(timeout=BACK_S)

    assert [2, 4] == [item.get(timeout=BACK_S) for item in parked]
    assert 6 == double.delay(3).get(timeout=BACK_S)
    assert {0: 1, 1: 1, 2: 1, 3: 1} == runs_of(worker)
    assert pid == worker.pid


def ended_or(worker: WorkerProcess, look: Callable[[], bool]) -> bool:
    """Whether the worker has ended, or the look finds what it looks for."""
    return not worker.running or look()


def test_what_ends_its_worker_leaves_a_quorum_queue(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """On threads an item ends worker after worker until the queue's limit moves it away; the others succeed (49)."""
    site = open_site(broker="rabbitmq", settings={QUORUM: True})
    dead = f"{site.site.queue}.dead"
    with Connection(site.broker.url) as connection, connection.channel() as channel:
        Queue(dead, channel=channel, routing_key=dead).declare()
        worker = start_worker("outage", site=site, pool="threads")
        deadly = worker.task("deadly")
        with busy(worker, deadly):
            items = [deadly.delay(x) for x in (1, -2, 3)]
            wait_for_waiting(worker, 3)
        worker.wait(BACK_S)
        moved: list[str] = []

        def all_have_ended() -> bool:
            if message := channel.basic_get(dead, no_ack=True):
                moved.append(message.headers["id"])
            return bool(moved) and all(items[x].ready() for x in (0, 2))

        for _ in range(REDELIVERIES + 1):
            # A worker that holds one message counts a delivery of that one only.
            worker = start_worker(
                "outage", site=site, pool="threads", extra=["--prefetch-multiplier=1"], wait_ready=False
            )
            wait_until(partial(ended_or, worker, all_have_ended), "it ends, or all items have", BACK_S, saw=worker.log)
            if worker.running:
                break
            worker.wait()

        assert worker.running
        assert [items[1].id] == moved
        assert [2, 6] == [items[x].get(timeout=BACK_S) for x in (0, 2)]
        with pytest.raises(GivenUpError):
            items[1].get(timeout=0.1)
        channel.queue_delete(dead)
