"""A batch that has ended leaves nothing in its process: its inputs may be large."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from celery import Celery, current_app
from kombu.utils.uuid import uuid

from celery_batching import BatchTask
from celery_batching.pool.item import TracedItem
from celery_batching.pool.messages import BatchPayload, BatchReport, ItemPayload
from celery_batching.pool.run_batch import run_batch
from tests.support.site import Site


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app without servers."""
    before = current_app._get_current_object()
    app = Site().celery("released")
    app.set_current()

    @app.task(base=BatchTask, name="released.double")
    def double(xs: list[int]) -> list[int]:
        return [2 * x for x in xs]

    yield app
    before.set_current()
    app.close()


def test_nothing_is_left_to_the_garbage_collector(app: Celery) -> None:
    """When a batch ends, its items are gone without a collection."""
    gc.collect()
    gc.disable()
    try:
        assert [False, False] == failed(run_batch(payload_of(app, [1, 2])))
        assert 0 == items_alive()
    finally:
        gc.enable()


def failed(report: BatchReport) -> list[bool]:
    return [bool(reply.traced and reply.traced[0]) for reply in report.replies]


def items_alive() -> int:
    return sum(type(one) is TracedItem for one in gc.get_objects())


def payload_of(app: Celery, items: list[int]) -> BatchPayload:
    """A batch of calls as the main process sends it."""
    messages = [app.amqp.as_task_v2(uuid(), "released.double", (x,), {}) for x in items]
    payloads = []
    for message in messages:
        own = {"delivery_info": {}, "properties": {}, "reply_to": None, "correlation_id": message.headers["id"]}
        request = {**message.headers, **own}
        payloads.append(ItemPayload(message.headers["id"], request, message.body))
    return BatchPayload(
        "released.double", uuid(), "full", payloads, None, None, None, bulk=False, more=False, fast_trace=False
    )
