"""A batch that has ended leaves nothing in its process: its inputs, which may be large, are free at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from celery import Celery, current_app
from kombu.serialization import dumps
from kombu.utils.uuid import uuid

from celery_batching import BatchTask
from celery_batching.pool.item import TracedItem
from celery_batching.pool.messages import BatchPayload, ItemPayload
from celery_batching.pool.run_batch import run_batch
from tests.support.site import Site


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app without servers, whose model fails negative numbers, alone or together with all others."""
    before = current_app._get_current_object()
    app = Site().celery("released")
    app.set_current()

    @app.task(base=BatchTask, name="released.double")
    def double(xs: list[int]) -> list[int]:
        if -1 in xs:
            raise ValueError("-1 fails everybody")
        return [2 * x for x in xs]

    yield app
    before.set_current()
    app.close()


@pytest.mark.parametrize("items", [[1, 2, 3, 4], [1, -1, 3, 4]])
def test_nothing_is_left_to_the_garbage_collector(app: Celery, items: list[int]) -> None:
    """When a batch ends, its items are gone without a collection, also when `run` raised and was split."""
    gc.collect()
    gc.disable()
    try:
        report = run_batch(payload_of(app, items))
        assert [x == -1 for x in items] == [bool(reply.traced[0]) for reply in report.replies if reply.traced]
        del report
        alive = [one for one in gc.get_objects() if type(one) is TracedItem]
        assert 0 == len(alive)
    finally:
        gc.enable()


def payload_of(app: Celery, items: list[int]) -> BatchPayload:
    """A batch of calls as the main process sends it."""
    messages = [app.amqp.as_task_v2(uuid(), "released.double", (x,), {}) for x in items]
    payloads = []
    for message in messages:
        content_type, encoding, body = dumps(message.body, serializer="json")
        request = {**message.headers, "delivery_info": {}, "reply_to": None, "correlation_id": message.headers["id"]}
        payloads.append(ItemPayload(message.headers["id"], request, body, content_type, encoding))
    return BatchPayload("released.double", uuid(), "full", payloads, None, False)
