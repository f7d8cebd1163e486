"""Items that come again: what this worker still knows of them when their channel is dead."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from celery import Celery
from kombu import Connection

from celery_batching import BatchTask
from celery_batching.consumer.holdings import Holdings
from celery_batching.consumer.request import BatchRequest

Delivered = Callable[[str], BatchRequest]


@pytest.fixture
def delivered() -> Iterator[Delivered]:
    """Requests of messages of kombu's own transport in memory, by the id of their item."""
    app = Celery("holdings", broker="memory://", set_as_current=False)

    @app.task(base=BatchTask, name="holdings.double", shared=False)
    def double(x: list[int]) -> list[int]:
        return [2 * each for each in x]

    queue = f"holdings.{uuid.uuid4().hex}"
    with Connection("memory://") as connection, connection.SimpleQueue(queue) as simple:

        def deliver(item_id: str) -> BatchRequest:
            double.apply_async((1,), task_id=item_id, queue=queue, connection=connection)
            message = simple.get(timeout=5)
            return BatchRequest(
                message, on_ack=message.ack_log_error, on_reject=message.reject_log_error, app=app, task=double
            )

        yield deliver


def in_the_next_turn(*how: object) -> None:
    """Celery puts off what it tells a message; a turn that does not come while the test lasts."""


def ended(delivered: Delivered, holdings: Holdings, end: Callable[[BatchRequest], Any], *, told: bool) -> BatchRequest:
    """A request that was taken in and had its end, which Celery's loop has passed on to the message or not."""
    request = delivered("one")
    assert holdings.take_in(request, None)
    if not told:
        request._deliveries = [
            one._replace(on_ack=in_the_next_turn, on_reject=in_the_next_turn) for one in request._deliveries
        ]
    end(request)
    holdings.release([request])
    return request


@pytest.mark.parametrize("end", [BatchRequest.acknowledge, BatchRequest.reject], ids=["acked", "rejected"])
def test_an_item_whose_end_was_not_told_is_known(delivered: Delivered, end: Callable[[BatchRequest], Any]) -> None:
    """Its message comes again after the loss, and has the same end: it does not run."""
    holdings = Holdings()
    ended(delivered, holdings, end, told=False)
    holdings.lose_channel([])
    again = delivered("one")
    assert not holdings.take_in(again, None)
    assert again.acknowledged
    assert {BatchRequest.acknowledge: "ACK", BatchRequest.reject: "REJECTED"}[end] == again.message._state
    assert holdings.take_in(delivered("one"), None), "known once: an id that was answered may be called again"


@pytest.mark.parametrize(
    ("end", "told"),
    [(BatchRequest.acknowledge, True), (partial(BatchRequest.reject, requeue=True), False)],
    ids=["acked and told", "put back"],
)
def test_another_item_is_new(delivered: Delivered, end: Callable[[BatchRequest], Any], told: bool) -> None:
    """A message that comes for an id whose end was told, or which was to run again, asks for a run."""
    holdings = Holdings()
    ended(delivered, holdings, end, told=told)
    holdings.lose_channel([])
    assert holdings.take_in(delivered("one"), None)


def test_told_items_are_forgotten(delivered: Delivered) -> None:
    """What was passed on meanwhile takes no memory."""
    holdings = Holdings()
    first = ended(delivered, holdings, BatchRequest.acknowledge, told=False)
    assert [first] == [holding.request for holding in holdings._untold]
    first.message.ack()
    ended(delivered, holdings, BatchRequest.acknowledge, told=True)
    assert not holdings._untold


def test_an_item_that_could_not_be_settled_runs_again(delivered: Delivered) -> None:
    """Whether it ended before or after the loss, it will never acknowledge anything: its message must not join it."""
    holdings = Holdings()
    before, after = delivered("before"), delivered("after")
    assert holdings.take_in(before, None)
    assert holdings.take_in(after, None)
    holdings.release([before])
    holdings.lose_channel([after])
    holdings.release([after])
    assert holdings.take_in(delivered("before"), None)
    assert holdings.take_in(delivered("after"), None)
