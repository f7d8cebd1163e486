"""Messages are taken from Redis and recorded in one step: what is taken, in which order, and what is noted of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from celery_batching.transport.asking import Asking, Question
from tests.support.child_process import ChildProcess, free_ports
from tests.support.leased import Inbox, Record, leased, publish, stock
from tests.support.redis_server import RedisServer, find_server
from tests.support.sites import LiveSite
from tests.support.waiting import wait_until

pytestmark = pytest.mark.any_celery

SiteFixture = Callable[..., LiveSite]


@pytest.fixture
def live(open_site: SiteFixture) -> LiveSite:
    """A broker of the test's own."""
    return open_site()


@pytest.fixture
def record(live: LiveSite) -> Iterator[Record]:
    """What that broker has noted."""
    record = Record(live.broker.client)
    yield record
    record.close()


def test_what_is_taken_is_unacked_in_kombus_format(live: LiveSite, record: Record) -> None:
    """Each message is taken with its record: the text as it was, exchange, routing key, the time, the holder."""
    publish(live.broker.url, "q", {"empty": []}, {"empty": {}}, "third")
    texts = live.broker.client.lrange("q", 0, -1)

    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", prefetch=2)
        inbox.wait_for(2)

        assert [{"empty": []}, {"empty": {}}] == inbox.bodies
        assert 2 == inbox.look()
        assert 1 == live.broker.client.llen("q")
        noted = live.broker.client.hgetall("unacked")
        assert [[json.loads(text), "", "q"] for text in texts[:0:-1]] == sorted(
            (json.loads(value) for value in noted.values()), key=lambda value: texts[::-1].index(json.dumps(value[0]))
        )
        assert set(noted) == set(record.holders) == set(live.broker.client.zrange("unacked_index", 0, -1))
        assert abs(live.broker.client.zscore("unacked_index", next(iter(noted))) - time.time()) < 60

        for message in inbox.messages:
            message.ack()
        assert not record.unacked
        assert not record.holders
        inbox.wait_for(3)[2].ack()
    assert not record.living


def test_what_is_no_message_is_dropped_and_told(
    live: LiveSite, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes, JSON that is no message, and one without a tag are logged with their list; the next message comes."""
    surrogate: dict[str, Any] = {"body": "", "headers": {"argsrepr": "\ud800"}, "content-encoding": "utf-8"}
    surrogate["properties"] = {
        "body_encoding": "base64",
        "delivery_tag": "odd",
        "delivery_info": {"exchange": "", "routing_key": "q"},
    }
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        live.broker.client.lpush("q", b"\xff\x00 bytes", "[1, 2]", "7", '{"properties": {}}', '{"properties": 3}')
        live.broker.client.lpush("q", json.dumps(surrogate))
        odd = json.dumps(surrogate).replace('"odd"', '"cut short"')
        live.broker.client.lpush("q", odd[:-1], odd.replace('"body": ""', '"body": "abcde"'))
        publish(live.broker.url, "q", "good")

        inbox.wait_for(2)

        assert "odd" == inbox.messages[0].delivery_tag
        assert "good" == inbox.messages[1].payload
        assert set(record.unacked) == {message.delivery_tag for message in inbox.messages}
        for message in inbox.messages:
            message.ack()
    told = [one for one in caplog.messages if "no message from the list q" in one]
    assert 7 == len(told)
    assert "bytes" in told[0]


def test_a_tag_that_is_no_text_is_dropped_and_told(
    live: LiveSite, record: Record, caplog: pytest.LogCaptureFixture
) -> None:
    """It could not be acknowledged, and would come for ever; a tag may be any text."""
    good = ["a", "é", "€ \U0001f600", 'with "quotes"']
    bad = [b"\xff\xfe", b"\xc3\xe2\x82\xac\xa9", b"\xed\xa0\x80", b"\xc0\x80"]
    message = b'{"body": "", "properties": {"delivery_tag": %b, "delivery_info": {"exchange": "", "routing_key": "q"}}}'
    for tag in [*(json.dumps(tag, ensure_ascii=False).encode() for tag in good), *(b'"%b"' % tag for tag in bad)]:
        live.broker.client.lpush("q", message % tag)
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.wait_for(len(good))
        assert good == [one.delivery_tag for one in inbox.messages]
        for one in inbox.messages:
            one.ack()
        wait_until(lambda: not record.unacked, "all are acknowledged", saw=lambda: record.unacked)
    assert len(bad) == len([one for one in caplog.messages if "no message from the list q" in one])


def test_all_keys_carry_the_prefix(live: LiveSite) -> None:
    """With `global_keyprefix` every key that is written begins with it."""
    options = {"global_keyprefix": "app:"}
    publish(live.broker.url, "q", 1, 2, **options)

    with leased(live.broker.url, **options) as connection:
        inbox = Inbox(connection, "q", prefetch=1)
        inbox.wait_for(1)

        assert {key for key in live.broker.client.scan_iter() if not key.startswith("app:")} <= {"tests:claimed"}
        assert 1 == live.broker.client.hlen("app:unacked")
        inbox.messages[0].reject(requeue=True)
        inbox.wait_for(2)[1].ack()
        inbox.wait_for(3)[2].ack()
        assert [1, 2, 1] == inbox.bodies
    assert 0 == live.broker.client.exists("app:unacked", "app:q")


def test_the_best_priority_comes_first_and_queues_take_turns(live: LiveSite) -> None:
    """All lists of one priority come before the next, as kombu has them; queues of one priority take turns."""
    publish(live.broker.url, "a", "a1", "a2", "a3", priority=3)
    publish(live.broker.url, "b", "b1", "b2", priority=3)
    publish(live.broker.url, "b", "first", priority=0)
    publish(live.broker.url, "a", "last", priority=9)

    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "a", "b")
        inbox.wait_for(7)
        for message in inbox.messages:
            message.ack()

    assert ["first", "last"] == [inbox.bodies[0], inbox.bodies[-1]]
    middle = inbox.bodies[1:-1]
    assert [["a1", "a2", "a3"], ["b1", "b2"]] == [[x for x in middle if x[0] == name] for name in "ab"]
    assert {"a", "b"} == {x[0] for x in middle[:2]} == {x[0] for x in middle[2:4]}


def test_queues_in_a_strict_order_are_emptied_in_it(live: LiveSite) -> None:
    """With kombu's `priority` strategy the first queue goes before all others."""
    publish(live.broker.url, "b", "b1", "b2")
    publish(live.broker.url, "a", "a1", "a2")

    with leased(live.broker.url, queue_order_strategy="priority") as connection:
        inbox = Inbox(connection, "a", "b")
        inbox.wait_for(4)
        for message in inbox.messages:
            message.ack()

    assert ["a1", "a2", "b1", "b2"] == inbox.bodies


def test_a_message_on_an_idle_queue_comes_at_once(live: LiveSite) -> None:
    """A consumer that waits is told of a message on any of its lists, without a poll."""
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", "r")
        inbox.look(0.3)
        delays = []
        for n, priority in enumerate([0, 9, 3, 0, 6, 0, 9]):
            text = json.dumps(
                {
                    "body": "",
                    "headers": {},
                    "properties": {"delivery_tag": f"t{n}", "delivery_info": {"exchange": "", "routing_key": "r"}},
                }
            )
            start = time.monotonic()
            live.broker.client.lpush("r" if not priority else f"r\x06\x16{priority}", text)
            inbox.wait_for(n + 1)
            delays.append(time.monotonic() - start)
            inbox.messages[-1].ack()
            inbox.look(0.1)

    # Of most on a busy machine; who polls would need half a second.
    assert sorted(delays)[3] < 0.2


def test_a_consumer_that_never_acks_leaves_nothing(live: LiveSite, record: Record) -> None:
    """Messages for a consumer with `no_ack` are gone when they are delivered."""
    publish(live.broker.url, "q", 1, 2)
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", no_ack=True)
        inbox.wait_for(2)

        assert not record.unacked
        assert not record.holders


def test_a_message_that_comes_after_its_consumer_left_goes_back(live: LiveSite, record: Record) -> None:
    """What a question in flight brings for a queue that was cancelled meanwhile is back on it."""
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", "r")
        inbox.look()
        publish(live.broker.url, "q", 1)
        connection.transport.cycle.on_poll_start()  # asks
        inbox.consumer.cancel_by_queue("q")
        publish(live.broker.url, "r", 2)
        inbox.wait_for(1)

        assert [2] == inbox.bodies
        inbox.messages[0].ack()
        assert 1 == live.broker.client.llen("q")
        assert not record.unacked
    live.broker.client.delete("q")


def test_nothing_is_taken_without_room(live: LiveSite, record: Record) -> None:
    """The prefetch count holds, and an ack makes room for one more."""
    publish(live.broker.url, "q", *range(6))
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", prefetch=3)
        inbox.wait_for(3)
        inbox.look(0.3)
        publish(live.broker.url, "q", 6)  # is told of to a worker without room
        inbox.look(0.3)
        assert 3 == len(inbox.messages) == len(record.unacked)

        inbox.messages[0].ack()
        inbox.wait_for(4)
        assert 4 == inbox.look(0.2)
        inbox.consumer.qos(prefetch_count=10)
        inbox.wait_for(7)
        for message in inbox.messages[1:]:
            message.ack()
    assert list(range(7)) == inbox.bodies


def test_messages_of_stock_workers_are_restored_after_the_visibility_timeout(live: LiveSite, record: Record) -> None:
    """Kombu's own restore goes on: what a stock worker held and never acked comes to us after its timeout."""
    publish(live.broker.url, "q", 1)
    options = {"visibility_timeout": 1, "unacked_restore_throttle": 1}
    with stock(live.broker.url, **options) as lost:
        held = Inbox(lost, "q")
        held.wait_for(1)
        with leased(live.broker.url, **options) as connection:
            inbox = Inbox(connection, "q")
            inbox.wait_for(1)
            assert [1] == inbox.bodies
            assert inbox.messages[0].headers["redelivered"]
            inbox.messages[0].ack()
    wait_until(lambda: not record.unacked, "nothing is unacked")


def test_a_consumer_of_many_messages_takes_them_in_one_question(
    live: LiveSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round trip brings as many messages as there is room for."""
    asked: list[Question] = []
    send = Asking.send

    def spy(self: Asking, connection: Any, question: Question) -> None:
        asked.append(question)
        send(self, connection, question)

    monkeypatch.setattr(Asking, "send", spy)
    publish(live.broker.url, "q", *range(100))
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q", prefetch=64)
        inbox.wait_for(64)
        assert [64] == [question.room for question in asked]
        for message in inbox.messages:
            message.ack()
        inbox.wait_for(100)
        for message in inbox.messages[64:]:
            message.ack()


def test_a_flushed_script_cache_changes_nothing(
    start_redis: Callable[..., RedisServer], open_site: SiteFixture
) -> None:
    """After `SCRIPT FLUSH` the scripts are sent again."""
    live = open_site(redis=start_redis())
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.look()
        live.broker.client.script_flush()
        publish(live.broker.url, "q", 1)
        inbox.wait_for(1)[0].ack()


def test_without_tracking_messages_come_by_asking_again(
    start_redis: Callable[..., RedisServer], open_site: SiteFixture, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that does not let us track keys is asked again and again, and that is logged."""
    live = open_site(redis=start_redis("--rename-command", "CLIENT", "HIDDEN"))
    with leased(live.broker.url) as connection:
        inbox = Inbox(connection, "q")
        inbox.look()
        publish(live.broker.url, "q", 1)
        inbox.wait_for(1)[0].ack()
    assert 1 == len([line for line in caplog.messages if "does not tell of new messages" in line])


def test_work_goes_on_at_a_full_server(start_redis: Callable[..., RedisServer], open_site: SiteFixture) -> None:
    """A server that refuses all that needs memory lets a worker take, renew, return and ack."""
    live = open_site(redis=start_redis())
    record = Record(live.broker.client)
    publish(live.broker.url, "q", 1, 2, 3)
    with leased(live.broker.url, seconds=3.0, visibility_timeout=3) as connection:
        inbox = Inbox(connection, "q", prefetch=2)
        live.broker.client.config_set("maxmemory", 1)
        inbox.wait_for(2)
        scores = record.scores
        wait_until(lambda: record.scores != scores, "a refreshment")
        inbox.messages[0].reject(requeue=True)
        inbox.wait_for(3)[2].ack()
        inbox.messages[1].ack()
        inbox.wait_for(4)[3].ack()
        assert not inbox.channel.lease.lost
        live.broker.client.config_set("maxmemory", 0)

    assert [1, 2, 3, 1] == inbox.bodies


def test_behind_sentinel(start_redis: Callable[..., RedisServer], open_site: SiteFixture, tmp_path: Path) -> None:
    """The lease works where Sentinel names the server."""
    server = start_redis()
    live = open_site(redis=server)
    (port,) = free_ports(1)
    address = urlsplit(server.address)
    config = tmp_path / "sentinel.conf"
    config.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor mine {address.hostname} {address.port} 1\n")
    with ChildProcess([find_server(), str(config), "--sentinel"], folder=tmp_path) as sentinel:
        sentinel.wait_for(lambda: sentinel.listens_on(port), "Sentinel serves its port")
        url = f"sentinel://127.0.0.1:{port}/{urlsplit(live.broker.url).path.strip('/')}"
        publish(live.broker.url, "q", 1, 2)
        with leased(url, master_name="mine") as connection:
            inbox = Inbox(connection, "q", prefetch=1)
            inbox.wait_for(1)[0].ack()
            inbox.wait_for(2)
            record = Record(live.broker.client)
            assert 1 == len(record.living)
            assert 1 == len(record.unacked)
        assert 1 == live.broker.client.llen("q")
    live.broker.client.delete("q")
