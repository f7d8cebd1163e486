"""What a dead worker held is back on its queues soon, once; what a living one holds stays with it."""

from __future__ import annotations

import dataclasses
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection
from kombu.transport import redis as kombu_redis

from celery_batching.transport.fence import Fence
from celery_batching.transport.ledger import Held, Push
from celery_batching.transport.redis import Leasing, fence_of, lease_connection
from tests.support.busy import busy, later_runs, wait_for_waiting
from tests.support.leased import Inbox, Record, in_threads, leased, publish, stock
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]
SiteFixture = Callable[..., LiveSite]
RedisFixture = Callable[..., RedisServer]

#: Seconds a worker of these tests may stand still: short, so that the tests are, but more than a busy machine asks for.
LEASE_S = 4.0

#: Seconds after a kill by which a lease of `LEASE_S` is over and swept.
SWEPT_S = 30.0

#: How often the connections of a worker under load are cut.
CUTS = 20

SHORT = {"batching_lease": LEASE_S}


@pytest.fixture
def live(open_site: SiteFixture) -> LiveSite:
    """A broker of the test's own, for workers with a short lease."""
    return open_site(settings=SHORT)


@pytest.fixture
def record(live: LiveSite) -> Iterator[Record]:
    """What that broker has noted."""
    record = Record(live.broker.client)
    yield record
    record.close()


def to_its_queue(_client: Any, value: bytes, last: bool) -> list[Push]:
    """As kombu routes, for messages that name their queue."""
    payload, _, queue = json.loads(value)
    return [Push("LPUSH" if last else "RPUSH", queue, json.dumps(payload))]


def expire_all(record: Record) -> None:
    """Let every lease be over and swept, as if all workers had stood still."""
    for key in (record.leases_key, record.keys.workers):
        record.client.zadd(key, dict.fromkeys(record.client.zrange(key, 0, -1), 1), xx=True)
    record.ledger().bury()


def pause(seconds: float) -> None:
    """Let time pass that is part of the scenario."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, "time passes", seconds + 5)


# The record


def test_many_sweepers_return_each_message_once(live: LiveSite, record: Record) -> None:
    """However many workers sweep at the same moment, each message of the dead one is on the queue once."""
    publish(live.broker.url, "q", *range(200))
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(200)
        (holder,) = record.living

        def sweep() -> int:
            ledger = record.ledger()
            return sum(ledger.requeue(held, to_its_queue) for held in ledger.bury(holder))

        assert 200 == sum(in_threads(6, sweep))
        assert not record.unacked
        assert not record.holders
        tags = [json.loads(text)["properties"]["delivery_tag"] for text in live.broker.client.lrange("q", 0, -1)]
        assert 200 == len(set(tags)) == len(tags)
        inbox.messages[0].ack()
        assert 200 == live.broker.client.llen("q")
        record.ledger().bury()
    assert not live.broker.client.exists("celery_batching.unacked.dead")
    live.broker.client.delete("q")


def test_what_is_returned_keeps_its_order_and_comes_first(live: LiveSite, record: Record) -> None:
    """At the end of a connection its messages are at the head of the queue again, the oldest first, as redelivered."""
    publish(live.broker.url, "q", *range(9))
    with leased(live.broker.url) as connection:
        Inbox(connection, "q", prefetch=6).wait_for(6)
    assert not record.unacked
    assert not record.living

    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(9)
        for message in inbox.messages:
            message.ack()

    assert list(range(9)) == inbox.bodies
    assert [True] * 6 + [None] * 3 == [message.headers.get("redelivered") for message in inbox.messages]


def test_a_delivery_that_a_stock_worker_has_now_is_left_to_it(live: LiveSite, record: Record) -> None:
    """When kombu's visibility timeout gave a message to a stock worker, neither ack nor sweep of ours takes it away."""
    publish(live.broker.url, "q", 1)
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(1)
        with stock(live.broker.url) as other:
            other.default_channel.qos.restore_by_tag(inbox.messages[0].delivery_tag)
            theirs = Inbox(other, "q")
            theirs.wait_for(1)

            inbox.messages[0].ack()
            assert {theirs.messages[0].delivery_tag} == record.unacked
            assert [] == record.ledger().bury(record.living[0])
            assert not record.holders
            theirs.messages[0].ack()
    assert not record.unacked


def test_an_ack_that_cannot_be_sent_is_sent_later(
    live: LiveSite, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ack never raises; without a connection the lease's own thread sends it as soon as it can."""
    publish(live.broker.url, "q", 1, 2)
    with leased(live.broker.url, seconds=1.0) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(2)
        ledger = inbox.channel.lease._ledger
        pool = ledger.client.connection_pool
        monkeypatch.setitem(pool.connection_kwargs, "port", 1)
        pool.disconnect()

        inbox.messages[0].ack()
        inbox.messages[1].reject()

        wait_until(lambda: not record.unacked, "both are acked")


def test_a_channel_closes_without_its_broker_and_the_next_one_returns_what_it_held(
    start_redis: RedisFixture, open_site: SiteFixture
) -> None:
    """Closing raises nothing when the broker is gone; the next lease does not wait for the last one's end."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    live = open_site(redis=server)
    publish(live.broker.url, "q", 1, 2)
    with leased(live.broker.url, seconds=300) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(2)
        server.stop()
        inbox.messages[0].ack()
        connection.close()
    server.start()

    with leased(live.broker.url, seconds=300) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(1)[0].ack()
        assert [2] == inbox.bodies


def test_an_answer_that_is_lost_ends_the_connection(live: LiveSite, record: Record) -> None:
    """What kombu's health check cuts off may have brought messages: they go back, as the connection begins anew."""
    publish(live.broker.url, "q", 1)
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        connection.transport.cycle.on_poll_start()  # asks
        wait_until(lambda: record.unacked, "it is taken")
        inbox.channel.client.connection.disconnect()

        with pytest.raises(connection.connection_errors, match="before an answer came"):
            inbox.look()
    assert not record.unacked
    assert 1 == live.broker.client.llen("q")
    live.broker.client.delete("q")


def test_a_lost_lease_ends_the_connection(live: LiveSite, record: Record) -> None:
    """A consumer whose holder was declared dead takes nothing more, and its connection raises."""
    with leased(live.broker.url, seconds=1.0) as connection:
        inbox = Inbox(connection, "q")
        inbox.look()
        record.ledger().bury(*record.living)
        publish(live.broker.url, "q", 1)

        with pytest.raises(connection.connection_errors, match="declared dead"):
            inbox.wait_for(1)

    assert not record.unacked
    live.broker.client.delete("q")


def test_the_fence_falls_with_the_lease(live: LiveSite, record: Record) -> None:
    """A pool process may store while the lease stands, and also when it cannot ask; not after it fell."""
    app = live.app("control")
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.look()

        class Consumer:
            task_consumer = inbox.consumer

        fence = fence_of(Consumer)
        assert fence is not None
        assert fence.holds(app)
        late = Fence(fence.worker, fence.workers, time.monotonic() - 1)
        assert late.holds(app)

    with leased(live.broker.url) as connection:  # a lost connection is not the end of a worker
        inbox = Inbox(connection, "q")
        inbox.look()
        assert inbox.channel.lease.worker == late.worker
        expire_all(record)
        assert fence.holds(app)  # asks nobody yet
        assert not late.holds(app)

    live.broker.client.set(fence.workers, "no set")  # so that the question fails
    assert late.holds(app)
    live.broker.client.delete(fence.workers)
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.look()
        assert inbox.channel.lease.worker != late.worker


def test_there_is_no_fence_without_leases(live: LiveSite) -> None:
    """On a stock connection there is nothing to ask."""
    with stock(live.broker.url) as connection:

        class Consumer:
            task_consumer = Inbox(connection, "q").consumer

        assert fence_of(Consumer) is None


def test_redis_without_acks_stays_as_it_is(live: LiveSite, record: Record) -> None:
    """`ack_emulation=False` asks for a transport that records nothing."""
    publish(live.broker.url, "q", 1)
    with leased(live.broker.url, ack_emulation=False) as connection:
        (message,) = Inbox(connection, "q").wait_for(1)
        assert not record.living
        assert not record.unacked
        message.ack()


def test_a_transport_of_the_users_own_stays_as_it_is(live: LiveSite) -> None:
    """Only kombu's very classes are replaced, not one that a user has made of them."""

    class OwnTransport(kombu_redis.Transport):
        pass

    with Connection(live.broker.url, transport=OwnTransport) as connection:
        lease_connection(connection, Leasing("tests", 10.0))
        assert OwnTransport is type(connection.transport)


def test_a_message_without_a_queue_to_return_to_stays_unacked(live: LiveSite, record: Record) -> None:
    """A message whose binding is gone is not thrown away with its holder."""
    publish(live.broker.url, "q", 1)
    with leased(live.broker.url) as connection:
        Inbox(connection, "q").wait_for(1)
        (holder,) = record.living
        assert [False] == [record.ledger().requeue(held, lambda *_: ()) for held in record.ledger().bury(holder)]
    (tag,) = record.unacked
    assert not record.ledger().requeue(Held(tag, holder), to_its_queue)
    with stock(live.broker.url) as other:
        other.default_channel.qos.restore_by_tag(tag)
    live.broker.client.delete("q")


# Workers


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_living_worker_takes_over_from_a_killed_one(live: LiveSite, start_worker: WorkerFixture, pool: str) -> None:
    """Running and buffered items of a killed worker run on another that lives, each of them once."""
    worker = start_worker("control", site=live, pool=pool)
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        if pool != "solo":  # whose loop stands still meanwhile
            wait_for_waiting(worker, 3)
        # A solo worker takes what is still on the queue, and answers no ping at its gate.
        start_worker("control", site=live, pool=pool, wait_ready=pool != "solo")
        worker.kill()

    assert [0, 2, 4, 6] == [item.get(timeout=2 * SWEPT_S) for item in (running, *items)]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == Counter(x for run in later_runs(worker) for x in run)


def test_items_are_back_within_15_seconds_by_default(open_site: SiteFixture, start_worker: WorkerFixture) -> None:
    """With the default lease another worker has a killed one's items within 15 s of the kill."""
    live = open_site()
    worker = start_worker("control", site=live)
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        wait_for_waiting(worker, 3)
        start_worker("control", site=live)
        worker.kill()
        killed = time.monotonic()

    assert [0, 2, 4, 6] == [item.get(timeout=SWEPT_S) for item in (running, *items)]
    # 15 are promised, of which a free machine takes about 13; two leases would be more than 20.
    assert live.journal.entries("run")[1].at - killed < 20


def test_the_next_worker_to_start_returns_what_is_left(live: LiveSite, start_worker: WorkerFixture) -> None:
    """Without a living worker the items wait for the next one, which has them soon after its start."""
    worker = start_worker("control", site=live)
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2)]
        wait_for_waiting(worker, 2)
        worker.kill()
    start_worker("control", site=live)

    assert [0, 2, 4] == [item.get(timeout=SWEPT_S) for item in (running, *items)]


def test_a_worker_that_stands_still_for_less_than_its_lease_is_not_robbed(
    live: LiveSite, record: Record, start_worker: WorkerFixture
) -> None:
    """A pause (SIGSTOP) below the lease changes nothing: its batch and its buffer stay with it."""
    worker = start_worker("control", site=live)
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2)]
        wait_for_waiting(worker, 2)
        start_worker("control", site=live)
        before = record.holders
        worker.signal(signal.SIGSTOP)
        pause(LEASE_S / 2)  # the test itself may be held up before it lets it go on
        worker.signal(signal.SIGCONT)
        worker.wait_for(worker.ping, "it answers")
        assert before == record.holders

    assert [0, 2, 4] == [item.get(timeout=SWEPT_S) for item in (running, *items)]
    assert {0: 1, 1: 1, 2: 1} == Counter(x for one in live.journal.entries("run") for x in one["items"])


def test_a_worker_that_wakes_after_its_lease_does_no_harm(
    live: LiveSite, record: Record, start_worker: WorkerFixture
) -> None:
    """Declared dead, it acks nothing of the newer run's when it wakes, connects again, and goes on working."""
    worker = start_worker("control", site=live)
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2)]
        wait_for_waiting(worker, 2)
        other = start_worker("control", site=live)
        taken = {tag for tag, holder in record.holders.items() if holder.startswith(worker.node)}
        worker.signal(signal.SIGSTOP)
        wait_until(
            lambda: taken == {tag for tag, holder in record.holders.items() if holder.startswith(other.node)},
            "the other has all",
            SWEPT_S,
            saw=lambda: record.holders,
        )
        worker.signal(signal.SIGCONT)
        worker.wait_for(lambda: "declared dead" in worker.log(), "it knows")
        worker.wait_for(lambda: worker.log().count("Connected to") > 1, "it connects again")
        wait_until(worker.ping, "it answers")
        assert taken == record.unacked

    assert [0, 2, 4] == [item.get(timeout=SWEPT_S) for item in (running, *items)]
    wait_until(lambda: not record.unacked, "all are acked")
    other.kill()
    assert 8 == double.delay(4).get(timeout=SWEPT_S)


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_long_batch_keeps_its_lease_and_passes_the_visibility_timeout(
    open_site: SiteFixture, start_worker: WorkerFixture, pool: str
) -> None:
    """A batch that is longer than both, also where it blocks the loop, runs once."""
    options = {"visibility_timeout": 3, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    live = open_site(settings={**SHORT, "broker_transport_options": options})
    worker = start_worker("control", site=live, pool=pool)
    double = worker.task("double")
    with busy(worker, double) as running:
        start_worker("control", site=live, pool="threads")
        pause(7)
    assert 0 == running.get(timeout=30)
    assert 2 == double.delay(1).get(timeout=30)
    assert [[0], [1]] == [entry["items"] for entry in live.journal.entries("run")]


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_cut_connections_lose_nothing(live: LiveSite, record: Record, start_worker: WorkerFixture, pool: str) -> None:
    """Under load, with the worker's connections cut again and again, every call is answered and acked."""
    worker = start_worker("control", site=live, pool=pool)
    double = worker.task("double")
    items: list[Any] = []

    def cut_amid_calls() -> int:
        items.extend(double.delay(x) for x in range(len(items), len(items) + 16))
        return cut_pops(live)

    for _ in range(CUTS):
        wait_until(cut_amid_calls, "the worker consumes, and is cut off")
    assert [2 * x for x in range(len(items))] == [item.get(timeout=60) for item in items]
    wait_until(lambda: not record.unacked, "nothing is unacked")
    assert len(items) <= sum(len(entry["items"]) for entry in live.journal.entries("run"))


def cut_pops(live: LiveSite) -> int:
    """Cut the connections on which something consumes, which are those that track keys; how many there were."""
    found = [one["id"] for one in live.broker.client.client_list() if "t" in one["flags"]]
    return sum(live.broker.client.client_kill_filter(_id=one) for one in found)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_outlives_a_restart_of_redis_with_unacked_messages(
    start_redis: RedisFixture, open_site: SiteFixture, start_worker: WorkerFixture, pool: str
) -> None:
    """Where a stock 5.7.0 worker ends, ours gets its items back and answers all calls."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    live = open_site(redis=server, settings=SHORT)
    # Celery's heartbeat event would connect again, and again, and so keep the worker from noticing the loss.
    worker = start_worker("control", site=live, pool=pool, extra=["--without-heartbeat"])
    double = worker.task("double")
    with busy(worker, double) as running:
        items = [double.delay(x) for x in (1, 2, 3)]
        if pool != "solo":
            wait_for_waiting(worker, 3)
        server.stop()
        if pool != "solo":
            worker.wait_for(lambda: "onnection to broker lost" in worker.log(), "the loss is noticed")
        server.start()
    if pool != "solo":
        worker.wait_for(lambda: worker.log().count("Connected to") > 1, "it connects again", 60)

    assert [0, 2, 4, 6] == [item.get(timeout=40) for item in (running, *items)]
    assert worker.running


def test_a_stock_worker_takes_over_after_the_visibility_timeout(
    open_site: SiteFixture, start_worker: WorkerFixture
) -> None:
    """Without any other worker of ours, a stock one restores and has the items as it always did."""
    options = {"visibility_timeout": 2, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    live = open_site(settings={**SHORT, "broker_transport_options": options})
    worker = start_worker("control", site=live)
    double = worker.task("double")
    with busy(worker, double):
        items = [double.delay(x) for x in (1, 2)]
        wait_for_waiting(worker, 2)
        worker.kill()
    with stock(live.broker.url, **options) as connection:
        inbox = Inbox(connection, live.site.queue)
        inbox.wait_for(3)
        assert {item.id for item in items} < {message.headers["id"] for message in inbox.messages}
        for message in inbox.messages:
            message.ack()
    record = Record(live.broker.client)
    # A worker of ours that starts now finds nothing to return, and tidies up.
    start_worker("control", site=live)
    wait_until(lambda: not record.holders, "the record is tidy")
    record.close()


def test_a_queue_that_is_added_at_run_time_is_consumed(live: LiveSite, start_worker: WorkerFixture) -> None:
    """`add_consumer` and `cancel_consumer` work as ever."""
    worker = start_worker("control", site=live)
    double, queue = worker.task("double"), f"{live.site.queue}.more"

    worker.control("add_consumer", queue)
    assert 2 == double.apply_async((1,), queue=queue).get(timeout=30)
    assert 4 == double.delay(2).get(timeout=30)
    worker.control("cancel_consumer", queue)
    assert 6 == double.delay(3).get(timeout=30)


def test_a_worker_without_batch_tasks_keeps_kombus_transport(
    live: LiveSite, record: Record, start_worker: WorkerFixture
) -> None:
    """A worker that does not consume the queue of a batch task has no lease."""
    worker = start_worker("control", site=live, extra=["-Q", f"{live.site.queue}.other"])
    assert 4 == worker.task("double_alone").apply_async((2,), queue=f"{live.site.queue}.other").get(timeout=30)
    assert not record.living


def test_a_failover_to_another_url_keeps_the_lease(
    start_redis: RedisFixture, live: LiveSite, start_worker: WorkerFixture, record: Record
) -> None:
    """Of several broker URLs the first is dead: the worker holds its messages under a lease on the second."""
    dead = start_redis()
    dead.stop()
    site = dataclasses.replace(live.site, broker_url=f"{dead.url(0)};{live.broker.url}")
    worker = start_worker("control", site=LiveSite(site, live.broker, live.backend), wait_ready=False)
    worker.wait_for(lambda: " ready." in worker.log(), "it is ready", 30)

    assert 4 == live.app("control").tasks["control.double"].delay(2).get(timeout=30)
    assert 1 == len(record.living)
