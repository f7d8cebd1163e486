"""Messages that belong to nobody, or that break only in the pool: they end, and their neighbours resolve (case 62)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from celery.result import AsyncResult

from tests.support.messages import Message, message_for
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
    "an encoding nobody knows": lambda message: message.but(body=b"[[1], {}, {}]", content_encoding="utf-99"),
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


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
def test_calls_of_nobody_are_dropped(shared_worker: WorkerFixture, pool: str, broker: str, task: str) -> None:
    """A message without an id or a task leaves the queue, its neighbours resolve, the worker lives (case 62)."""
    worker = shared_worker("control", pool=pool, broker=broker)

    send_among_good_ones(worker, task, NAMELESS)


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
def test_calls_that_are_odd_all_through_end(shared_worker: WorkerFixture, pool: str, broker: str, task: str) -> None:
    """Odd headers and callbacks are the trouble of their own item, which ends like any other (case 62)."""
    worker = shared_worker("control", pool=pool, broker=broker)

    odd = send_among_good_ones(worker, task, KNOWN)

    wait_until(
        lambda: all(result.ready() for result in odd.values()),
        "every odd call ends",
        saw=lambda: [kind for kind, result in odd.items() if not result.ready()],
    )


def send_among_good_ones(worker: WorkerProcess, name: str, kinds: Mapping[str, Spoil]) -> dict[str, AsyncResult]:
    """Send one message of each kind, a good one before and behind each of them; the good ones must resolve."""
    task = worker.task(name)
    odd: dict[str, AsyncResult] = {}
    with worker.journal.closed_gate():
        good = [task.delay(0)]
        for x, (kind, spoil) in enumerate(kinds.items(), 1):
            odd[kind] = spoil(message_for(task, x)).publish(worker.app)
            good.append(task.delay(x))

    assert [2 * x for x in range(len(good))] == [result.get(timeout=40) for result in good]
    worker.wait_for(worker.ping, "the worker lives")
    return odd
