"""Which items are spared Celery's tracer, and what is stored for them instead."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from celery import Celery, current_app, signals, states
from celery.app import trace
from celery.app.task import Task as CeleryTask
from celery.loaders.app import AppLoader
from kombu.utils.uuid import uuid

from celery_batching import BatchTask
from celery_batching._celery_internals import described, is_unobserved, new_success, request_of
from celery_batching.pool.batch_run import BatchRun
from celery_batching.pool.direct import DirectItem, new_items
from celery_batching.pool.messages import BatchPayload, ItemPayload

Watch = Callable[[BatchTask], AbstractContextManager[None]]


def a_task(backend: str) -> BatchTask:
    app = Celery("direct", backend=backend, set_as_current=False)

    @app.task(base=BatchTask, name="direct.double", shared=False)
    def double(x: list[int]) -> list[int]:
        return [2 * each for each in x]

    app.finalize()
    found: BatchTask = app.tasks["direct.double"]
    return found


@pytest.fixture
def task() -> Iterator[BatchTask]:
    """A task of an app whose Redis backend is never asked."""
    task = a_task("redis://127.0.0.1:1/0")
    yield task
    task.app.close()


def a_payload(task: BatchTask, **options: Any) -> ItemPayload:
    """A call as the main process sends it to the pool."""
    message = task.app.amqp.as_task_v2(uuid(), task.name, (1,), {}, **options)
    own = {"delivery_info": {"routing_key": "q"}, "properties": {}, "reply_to": None, "correlation_id": "c"}
    return ItemPayload(message.headers["id"], {**message.headers, **own}, message.body)


def a_batch(task: BatchTask, *, bulk: bool = True) -> BatchPayload:
    return BatchPayload(task.name, uuid(), "full", [], None, None, None, bulk=bulk, more=False, fast_trace=False)


def spared(task: BatchTask, payload: ItemPayload, *, bulk: bool = True) -> bool:
    (item,) = new_items(task, [payload], a_batch(task, bulk=bulk))
    return isinstance(item, DirectItem)


@contextmanager
def listening(signal: Any, task: BatchTask) -> Iterator[None]:
    signal.connect(anything, sender=task)
    try:
        yield
    finally:
        signal.disconnect(anything, sender=task)


@contextmanager
def deduplicating(task: BatchTask) -> Iterator[None]:
    task.app.conf.worker_deduplicate_successful_tasks = True
    yield
    task.app.conf.worker_deduplicate_successful_tasks = False


@contextmanager
def having(place: Callable[[BatchTask], Any], name: str, value: Any, task: BatchTask) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place(task), name, value, raising=False)
        yield


@contextmanager
def at_debug(task: BatchTask) -> Iterator[None]:
    logger = logging.getLogger("celery.app.trace")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)


def anything(*_: Any, **__: Any) -> None:
    """In place of a function of Celery's or of the task."""


class Wrapper:
    """As monitoring libraries wrap functions: all but its type is that of the function."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapped(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


WATCHED: dict[str, Watch] = {
    "task_prerun": partial(listening, signals.task_prerun),
    "task_postrun": partial(listening, signals.task_postrun),
    "task_success": partial(listening, signals.task_success),
    "track_started": partial(having, lambda task: task, "track_started", True),
    "deduplication": deduplicating,
    "lines of items": at_debug,
    **{name: partial(having, type, name, anything) for name in ("before_start", "on_success", "after_return")},
    "its own __call__": partial(having, type, "__call__", anything),
    "a wrapped __call__": partial(having, lambda task: task, "__call__", anything),
    "a loader's hook": partial(having, lambda _: AppLoader, "on_task_init", anything),
    "a wrapped build_tracer": partial(having, lambda _: trace, "build_tracer", anything),
    "a wrapper like a function": partial(having, lambda _: trace, "build_tracer", Wrapper(trace.build_tracer)),
    "a handler on Celery's class": partial(having, lambda _: CeleryTask, "after_return", anything),
    "a wrapped trace_task_ret": partial(having, lambda _: trace, "trace_task_ret", anything),
}


@pytest.mark.parametrize("watch", WATCHED.values(), ids=list(WATCHED))
def test_who_could_notice_the_tracer_gets_it(task: BatchTask, watch: Watch) -> None:
    """A listener, a handler, a setting or a library that replaces Celery's functions, as long as it is there."""
    payload = a_payload(task)
    assert is_unobserved(task, BatchTask)
    assert spared(task, payload)
    with watch(task):
        assert not spared(task, payload)
    assert spared(task, payload)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"errbacks": ["e"]}, True),  # nothing is done with it for a success
        ({"group_id": "g"}, True),
        ({"callbacks": ["c"]}, False),
        ({"chain": ["c"]}, False),
        ({"chord": "c"}, False),
    ],
    ids=str,
)
def test_a_call_after_which_others_come_is_traced(task: BatchTask, options: dict[str, Any], expected: bool) -> None:
    """Links, chains and chords are the tracer's to send."""
    assert expected is spared(task, a_payload(task, **options))


def test_without_shared_round_trips_all_are_traced(task: BatchTask) -> None:
    """``batching_bulk=False``, or a result backend that is not Redis."""
    assert not spared(task, a_payload(task), bulk=False)
    elsewhere = a_task("cache+memory://")
    assert not spared(elsewhere, a_payload(elsewhere))


CALLS = [{}, {"group_id": "g", "parent_id": "p"}, {"stamped_headers": ["s"], "s": "stamp", "retries": 3}]


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("options", CALLS, ids=["plain", "in a group", "stamped"])
@pytest.mark.parametrize("value", [None, 2, "two", {"a": [1, 2.5]}, (1, 2)], ids=repr)
def test_what_is_stored_is_what_celery_stores(
    task: BatchTask, value: Any, options: dict[str, Any], extended: bool
) -> None:
    """Key and content, but for the moment."""
    task.app.conf.result_extended = extended
    payload = a_payload(task, **options)
    assert spared(task, payload)
    backend, written = task.backend, []
    backend.get = lambda key: None
    backend._set = lambda key, stored, *_: written.append((key, stored))
    backend.mark_as_done(payload.id, value, request_of(payload))
    ((key, stored),) = written

    ours = new_success(backend, payload.id, value, described(payload))

    assert key == ours.key
    assert without_date(stored) == without_date(ours.value)
    assert states.SUCCESS == json.loads(ours.value)["status"]


def without_date(stored: str) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads(stored)
    assert meta.pop("date_done")
    return meta


def test_a_request_is_what_the_tracer_makes(task: BatchTask) -> None:
    """``batch.requests`` has the same contexts with and without the tracer."""
    payload = a_payload(task, retries=2, group_id="g", headers={"mine": 1})
    seen: list[dict[str, Any]] = []

    @task.app.task(bind=True, name="direct.seen", shared=False)
    def plain(self: Any, x: int) -> None:
        seen.append(dict(vars(self.request)))

    tracer = trace.build_tracer(plain.name, plain, app=task.app)
    args, kwargs, embedded = payload.call
    request = {**payload.request, "args": args, "kwargs": kwargs, "is_eager": False, **embedded}
    tracer(payload.id, args, kwargs, {**request, "hostname": trace.gethostname(), "ignore_result": True})

    own = dict(vars(request_of(payload)))
    assert {**seen[0], "ignore_result": own["ignore_result"]} == own


def test_a_listener_that_the_model_brings_hears_of_that_batch(task: BatchTask) -> None:
    """Such as one that a library connects when the first run imports it."""
    heard: list[str] = []
    app, before = task.app, current_app._get_current_object()

    def listen(task_id: str, **_: Any) -> None:
        heard.append(task_id)

    @app.task(base=BatchTask, name="direct.importing", shared=False)
    def importing(x: list[int]) -> list[int]:
        signals.task_postrun.connect(listen, weak=False)
        return x

    payloads = [a_payload(importing, ignore_result=True) for _ in range(2)]
    run = BatchRun(importing, a_batch(importing)._replace(items=payloads))
    app.set_current()
    try:
        run.begin()
        assert run.spares_tracers
        run.run_model()
        assert not run.spares_tracers
        report = run.end()
    finally:
        signals.task_postrun.disconnect(listen)
        before.set_current()

    assert [payload.id for payload in payloads] == heard
    assert [0, 0] == [reply.traced[0] for reply in report.replies]
