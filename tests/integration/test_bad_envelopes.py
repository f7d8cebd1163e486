"""Messages that belong to nobody, or that break only in the pool: they end, and their neighbours resolve (case 62)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest

from tests.support.messages import Message, message_for
from tests.support.sites import RedisDb
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
Spoil = Callable[[Message], Message]

PLACES = [("prefork", "redis"), ("threads", "rabbitmq")]
TASKS = ["double", "double_alone"]

#: Nobody can be told of these: there is no id that a caller could know.
NAMELESS: dict[str, Spoil] = {
    "without an id": lambda message: message.without_header("id"),
    "an id that is null": lambda message: message.with_headers(id=None),
    "an id that is a number": lambda message: message.with_headers(id=5),
    "an id that is a list": lambda message: message.with_headers(id=["a"]),
    "without a task": lambda message: message.without_header("task"),
    "without headers": lambda message: message.but(headers={}),
}

#: These end with a state, whatever it is.
KNOWN: dict[str, Spoil] = {
    "a task that is a number": lambda message: message.with_headers(task=5),
    "a task that is null": lambda message: message.with_headers(task=None),
    "a task that is a list": lambda message: message.with_headers(task=["control.double"]),
    "retries that are text": lambda message: message.with_headers(retries="many"),
    "a root that is a list": lambda message: message.with_headers(root_id=[1], parent_id={"a": 1}),
    "a group that is a number": lambda message: message.with_headers(group=5, group_index="first"),
    "callbacks that are a number": lambda message: message.but(body='[[1], {}, {"callbacks": 5}]'),
    "a callback that is a number": lambda message: message.but(body='[[1], {}, {"callbacks": [5]}]'),
    "a callback without a task": lambda message: message.but(body='[[1], {}, {"callbacks": [{"args": []}]}]'),
    "a chain that is a number": lambda message: message.but(body='[[1], {}, {"chain": 5}]'),
    "a chord that is a number": lambda message: message.but(body='[[1], {}, {"chord": 5}]'),
    "errbacks that are a number": lambda message: message.but(body='[[-1], {}, {"errbacks": 5}]'),
    "an errback that is a number": lambda message: message.but(body='[[-1], {}, {"errbacks": [5]}]'),
}

#: Entries of a Redis list that kombu did not put there.
RAW: dict[str, str] = {
    "no JSON": "garbage",
    "a number": "42",
    "an empty dict": "{}",
    "a body that is a number": '{"body": 5}',
    "a message without properties": json.dumps({"body": "W10=", "headers": {}, "content-type": "application/json"}),
    "a body that is no base64": json.dumps(
        {
            "body": "%%%",
            "headers": {"task": "control.double", "id": "raw"},
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "properties": {"body_encoding": "base64", "delivery_tag": "raw-1", "delivery_info": {}},
        }
    ),
    "an unknown body encoding": json.dumps(
        {
            "body": base64.b64encode(b"[[1], {}, {}]").decode(),
            "headers": {"task": "control.double", "id": "raw"},
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "properties": {"body_encoding": "base65", "delivery_tag": "raw-2", "delivery_info": {}},
        }
    ),
}


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", NAMELESS)
def test_a_call_of_nobody_is_dropped(
    shared_worker: WorkerFixture, pool: str, broker: str, task: str, kind: str
) -> None:
    """A message without an id or a task leaves the queue, its neighbours resolve, the worker lives (case 62)."""
    worker = shared_worker("control", pool=pool, broker=broker)

    assert_neighbours_resolve(
        worker, task, lambda: NAMELESS[kind](message_for(worker.task(task), 2)).publish(worker.app)
    )


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KNOWN)
def test_a_call_that_is_odd_all_through_ends(
    shared_worker: WorkerFixture, pool: str, broker: str, task: str, kind: str
) -> None:
    """Odd headers and callbacks are the trouble of their own item, which ends like any other (case 62)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    message = KNOWN[kind](message_for(worker.task(task), 2))

    assert_neighbours_resolve(worker, task, lambda: message.publish(worker.app))

    odd = worker.app.AsyncResult(message.headers["id"])
    wait_until(odd.ready, "the odd call ends", saw=lambda: odd.state)


@pytest.mark.parametrize("kind", RAW)
def test_a_raw_entry_of_the_queue_is_dropped(shared_worker: WorkerFixture, kind: str) -> None:
    """Something in the Redis list that is no message at all ends neither the worker nor its neighbours (case 62)."""
    worker = shared_worker("control")
    broker = worker.live.broker
    assert isinstance(broker, RedisDb)

    assert_neighbours_resolve(worker, "double", lambda: broker.client.lpush(worker.live.site.queue, RAW[kind]))


def assert_neighbours_resolve(worker: WorkerProcess, name: str, send: Callable[[], object]) -> None:
    """Send something bad between two good calls, all three as close together as they can be."""
    task = worker.task(name)
    with worker.journal.closed_gate():
        good = [task.delay(1)]
        send()
        good.append(task.delay(3))

    assert [2, 6] == [result.get(timeout=10) for result in good]
    assert 8 == task.delay(4).get(timeout=10)
    assert worker.running
