"""Calls whose message is made by a stencil: the one that Celery would make, and Celery makes it where it may differ."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any

import kombu
import pytest
from celery import Celery, Task, signals
from celery.app.amqp import AMQP
from celery.app.defaults import DEFAULTS
from celery.app.routes import Router
from celery.result import AsyncResult
from kombu import serialization
from kombu.exceptions import EncodeError

from celery_batching import BatchTask
from celery_batching.client.stencil import Stencil
from tests.support.redis_server import RedisServer
from tests.support.sites import LiveSite
from tests.support.task_events import monitor
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

SiteFixture = Callable[..., LiveSite]
WorkerFixture = Callable[..., WorkerProcess]
RedisFixture = Callable[..., RedisServer]

#: Equal calls after which the next one is made by a stencil: two of them showed the same message. Celery
#: declares the queue with the first, and only notes its own functions there.
LEARNED_FROM = 4


class Sent:
    """What leaves an app, and how many messages were made by stencils.

    Args:
        live: the site of the app.
        app: nobody consumes its queue.
    """

    def __init__(self, live: LiveSite, app: Celery) -> None:
        self.live = live
        self.app = app
        self.double: Any = app.tasks["lean.double"]
        self.made = 0

    def learn(self, **options: Any) -> None:
        """Let there be a stencil for such calls."""
        for _ in range(LEARNED_FROM):
            self.double.apply_async((1,), **options)
        made = self.made
        self.call((1,), **options)
        assert made + 1 == self.made

    def newest(self, queue: str | None = None) -> str:
        """The text of the message of the last ``call``, of all priorities of a queue; what waited there is gone."""
        client = self.live.broker.client
        name = queue or self.live.site.queue
        keys = [key for key in client.keys(f"{name}*") if key.split("\x06")[0] == name]
        texts = [raw for key in keys for raw in client.lrange(key, 0, -1)]
        for key in keys:
            client.delete(key)
        (text,) = [one for one in texts if json.loads(one)["headers"]["id"] == self.last]
        return text

    last = ""

    def call(self, *args: Any, **options: Any) -> AsyncResult[Any]:
        """Call, and note whose message is the last."""
        result: AsyncResult[Any] = self.double.apply_async(*args, **options)
        self.last = str(result.id)
        return result


@pytest.fixture
def sent(open_site: SiteFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """The messages of an app whose queue nobody consumes."""
    live = open_site()
    yield from _sent(live, live.app("lean"), monkeypatch)


def _sent(live: LiveSite, app: Celery, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    forget_dead_listeners()
    seen = Sent(live, app)
    filled = Stencil.filled

    def counted(stencil: Stencil, *args: Any) -> str:
        text = filled(stencil, *args)
        seen.made += len(args) == 4
        return text

    monkeypatch.setattr(Stencil, "filled", counted)
    yield seen
    for key in live.broker.client.keys(f"{live.site.queue}*"):
        live.broker.client.delete(key)


def forget_dead_listeners() -> None:
    """Celery 5.6 asks the list of listeners that an app found at its first call, and the first to come after
    the death of another, of an earlier test, makes a new list.
    """
    gc.collect()
    for signal in (signals.before_task_publish, signals.after_task_publish, signals.task_sent):
        signal.connect(listen_to_nothing)
        signal.disconnect(listen_to_nothing)


def listen_to_nothing(**_: Any) -> None:
    """A listener."""


OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "priority": {"priority": 6},
    "another queue": {"queue": "another"},
    "limits": {"time_limit": 30, "soft_time_limit": 20.5},
    "pickled": {"serializer": "pickle"},
    "no result": {"ignore_result": True},
    "no retry": {"retry": False},
}

CALLS: list[tuple[Any, ...]] = [
    ((1,),),
    ([1],),
    ((), {"xs": 2}),
    ((3,), None),
    (('it\'s 100 % "quoted" \\ %s %(id)s ü ☃ \U0001f600',),),
    (({"a": [1, None, {"b": True}], "c": 1.5e300},),),
    (("x" * 5000,),),
]


@pytest.mark.parametrize("name", OPTIONS)
def test_it_is_the_message_celery_makes(sent: Sent, name: str) -> None:
    """Character by character, on the same list, for all kinds of arguments."""
    options = OPTIONS[name]
    queue = f"{sent.live.site.queue}-other" if "queue" in options else None
    options = {**options, "queue": queue} if queue else options
    sent.learn(**options)
    sent.newest(queue)
    for call in CALLS:
        made = sent.made
        sent.call(*call, **options)
        ours = sent.newest(queue)
        assert made + 1 == sent.made
        with sent.app.producer_or_acquire() as producer:
            sent.call(*call, producer=producer, **options)
        assert normal(sent.newest(queue)) == normal(ours)


def normal(text: str) -> str:
    """The text of a message without what no two messages have in common."""
    message = json.loads(text)
    same = text.replace(message["headers"]["id"], "its id").replace(message["properties"]["delivery_tag"], "its tag")
    return same.replace(message["properties"]["reply_to"], "its caller")


@contextmanager
def nothing_made(sent: Sent) -> Iterator[None]:
    """No message inside the block is made by a stencil."""
    made = sent.made
    yield
    assert made == sent.made


@pytest.mark.parametrize("signal", ["before_task_publish", "after_task_publish", "task_sent"])
def test_who_listens_is_told_of_each(sent: Sent, signal: str) -> None:
    """Also who comes later, and it may change the message."""
    sent.learn()
    heard: list[Any] = []

    def hear(headers: Any = None, **_: Any) -> None:
        heard.append(headers)
        if signal == "before_task_publish":
            headers["tenant"] = "x"

    listened = getattr(signals, signal)
    listened.connect(hear)
    try:
        with nothing_made(sent):
            sent.call((2,))
    finally:
        listened.disconnect(hear)
    assert 1 == len(heard)
    assert (signal == "before_task_publish") is ("tenant" in json.loads(sent.newest())["headers"])
    made = sent.made
    sent.double.delay(3)
    assert made + 1 == sent.made, "when it has gone the stencil is right again"


def test_task_sent_is_told_of_each(sent: Sent) -> None:
    """Whether the setting was there first or comes later."""
    sent.app.conf.task_send_sent_event = True
    with monitor(sent.app) as events, nothing_made(sent):
        ids = [sent.double.delay(x).id for x in range(LEARNED_FROM + 4)]
        wait_until(lambda: len(events()) >= len(ids), "each is told", saw=events)
        assert [("task-sent", one) for one in ids] == [(event["type"], event["uuid"]) for event in events()]


def test_a_setting_that_changes_holds_from_the_next_call_on(sent: Sent) -> None:
    """As in Celery, which reads some of them for each call."""
    sent.learn()
    sent.app.conf.task_repr_maxlevels = 1
    with nothing_made(sent):
        sent.call(([[1]],))
    if "task_repr_maxlevels" in DEFAULTS:  # new in Celery 5.7
        assert "([...],)" == json.loads(sent.newest())["headers"]["argsrepr"]
    sent.app.conf.task_default_queue = other = f"{sent.live.site.queue}-other"
    with nothing_made(sent):
        sent.call((2,))
    assert sent.last in sent.newest(other)
    sent.app.conf.task_always_eager = True
    with nothing_made(sent):
        result = sent.call((4,))
    assert 8 == result.get()


class Proxy:
    """A wrapper that pretends to be what it wraps, as wrapt's do: in all its attributes, and in comparisons."""

    def __init__(self, wrapped: Any, calls: list[Any]) -> None:
        """Note each call."""
        self.wrapped = wrapped
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def __eq__(self, other: object) -> bool:
        return bool(self.wrapped == other)

    def __hash__(self) -> int:
        return hash(self.wrapped)

    def __get__(self, instance: Any, owner: type) -> Proxy:
        return self if instance is None else Proxy(self.wrapped.__get__(instance, owner), self.calls)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        return self.wrapped(*args, **kwargs)


def wrapped_plainly(function: Any, calls: list[Any]) -> Any:
    """As most libraries do it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return function(*args, **kwargs)

    return wrapper


OWNERS: dict[str, tuple[Any, str]] = {
    "app": (Celery, "send_task"),
    "task": (Task, "apply_async"),
    "producer": (kombu.Producer, "publish"),
}


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("wrapper", [wrapped_plainly, Proxy])
def test_who_wraps_celery_sees_each_call(
    sent: Sent, monkeypatch: pytest.MonkeyPatch, wrapper: Callable[..., Any], owner: str, early: bool
) -> None:
    """As monitoring libraries do, before the first call or later."""
    if not early:
        sent.learn()
    calls: list[Any] = []
    cls, name = OWNERS[owner]
    monkeypatch.setattr(cls, name, wrapper(getattr(cls, name), calls))
    with nothing_made(sent):
        for x in range(LEARNED_FROM + 2):
            sent.double.delay(x)
    assert LEARNED_FROM + 2 <= len(calls)


def test_code_that_is_replaced_in_its_place_sees_each_call(sent: Sent) -> None:
    """As instrumentation does that changes functions themselves."""
    sent.learn()
    told: list[Any] = []

    def send_task(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.told.append(args)
        return self.original(self, *args, **kwargs)

    function: Any = Celery.send_task
    code, original = function.__code__, FunctionType(function.__code__, function.__globals__, "send_task")
    original.__defaults__, original.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    sent.app.told, sent.app.original = told, original  # type: ignore[attr-defined]
    function.__code__ = send_task.__code__
    try:
        with nothing_made(sent):
            sent.double.delay(1)
    finally:
        function.__code__ = code
    assert 1 == len(told)


tenant: ContextVar[str] = ContextVar("tenant", default="a")


class TenantAMQP(AMQP):
    """Notes the tenant in each message."""

    def send_task_message(self, producer: Any, name: str, message: Any, **options: Any) -> Any:
        message.headers["tenant"] = tenant.get()
        return self._create_task_sender()(producer, name, message, **options)


class TenantRouter(Router):
    """Each tenant has queues of its own."""

    def expand_destination(self, route: Any) -> Any:
        return super().expand_destination(f"{route}-{tenant.get()}" if isinstance(route, str) else route)


class RoutingAMQP(AMQP):
    """With that router."""

    def Router(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802 - Celery's name
        """As Celery's, of another class."""
        stock: Any = super().Router(*args, **kwargs)
        stock.__class__ = TenantRouter
        return stock


@pytest.mark.parametrize("cls", [TenantAMQP, RoutingAMQP])
def test_parts_of_the_apps_own_make_each_message(
    open_site: SiteFixture, monkeypatch: pytest.MonkeyPatch, cls: type[AMQP]
) -> None:
    """What they do may depend on anything."""
    live = open_site()
    app = live.app("lean")
    vars(app)["amqp"] = cls(app)
    for sent in _sent(live, app, monkeypatch):
        with nothing_made(sent):
            for name in "aaaaaaab":
                tenant.set(name)
                sent.call((1,))
            tenant.set("a")
        if cls is TenantAMQP:
            assert "b" == json.loads(sent.newest())["headers"]["tenant"]
        else:
            assert sent.last in sent.newest(f"{live.site.queue}-b")


def test_a_serializer_that_comes_later_does_not_take_over(sent: Sent) -> None:
    """Another name for the same content type, before or after the first calls."""
    lax: Callable[[Any], str] = lambda value: json.dumps(value, default=str)  # noqa: E731
    serialization.register("lax", lax, json.loads, "application/json", "utf-8")
    try:
        sent.learn()
        sent.newest()
        sent.call((datetime.datetime(2024, 1, 1),))  # noqa: DTZ001
        ours = sent.newest()
        with sent.app.producer_or_acquire() as producer:
            sent.call((datetime.datetime(2024, 1, 1),), producer=producer)  # noqa: DTZ001
        assert normal(sent.newest()) == normal(ours)
        with pytest.raises(EncodeError):
            sent.call((object(),))
    finally:
        serialization.unregister("lax")
        serialization.register_json()


def test_a_task_need_not_be_hashable(sent: Sent) -> None:
    """Such as a dataclass."""

    @dataclasses.dataclass
    class Scaled(BatchTask):
        scale: int = 2
        name = "lean.scaled"

        def run(self, xs: list[int]) -> list[int]:
            return [self.scale * x for x in xs]

    sent.double = sent.app.register_task(Scaled())
    sent.learn()
    assert "lean.scaled" == json.loads(sent.newest())["headers"]["task"]


class Ambiguous:
    """Cannot be compared, as an array."""

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


def test_settings_are_not_compared(sent: Sent) -> None:
    """Only whether they are the same ones."""
    sent.app.conf.weights = Ambiguous()
    sent.learn()
    sent.app.conf.weights = Ambiguous()
    sent.call((1,))
    assert sent.last in sent.newest()


def _to_another(app: Celery, queue: str) -> None:
    app.conf.task_routes["lean.double"]["queue"] = queue


def _by_a_function(app: Celery, queue: str) -> None:
    app.amqp.router.routes.insert(0, lambda *_, **__: {"queue": queue})


def _by_other_routes(app: Celery, queue: str) -> None:
    app.amqp.router.routes = [lambda *_, **__: {"queue": queue}]


def _by_an_alias(app: Celery, queue: str) -> None:
    app.amqp.queues.add(kombu.Queue(queue, alias=f"{queue.removesuffix('-b')}-a"))


def _by_another_queue(app: Celery, queue: str) -> None:
    app.amqp.queues[f"{queue.removesuffix('-b')}-a"] = kombu.Queue(queue)


@pytest.mark.parametrize("change", [_to_another, _by_a_function, _by_other_routes, _by_an_alias, _by_another_queue])
def test_routes_that_change_in_their_place_are_followed(
    open_site: SiteFixture, monkeypatch: pytest.MonkeyPatch, change: Callable[[Celery, str], None]
) -> None:
    """From the next call on, as in Celery."""
    live = open_site()
    app = live.app("lean")
    app.conf.task_routes = {"lean.double": {"queue": f"{live.site.queue}-a"}}
    for sent in _sent(live, app, monkeypatch):
        sent.learn()
        change(app, f"{live.site.queue}-b")
        for _ in range(LEARNED_FROM + 2):
            sent.call((1,))
            assert sent.last in sent.newest(f"{live.site.queue}-b")


def test_a_class_for_results_that_comes_later_is_used(sent: Sent) -> None:
    """As Celery uses it."""
    sent.learn()

    class Mine(AsyncResult):  # type: ignore[type-arg]
        app = sent.app

    sent.app.AsyncResult = Mine  # type: ignore[assignment]
    assert type(sent.double.delay(1)) is Mine
    assert type(sent.double.delay(1)) is Mine


def test_a_router_that_looks_at_arguments_is_asked_each_time(
    open_site: SiteFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map of names is the same for all calls, a function may not be."""
    live = open_site()
    app = live.app("lean")
    app.conf.task_routes = [
        lambda name, args, kwargs, options, task=None: {"queue": f"{live.site.queue}-{args[0] % 2}"}
    ]
    for sent in _sent(live, app, monkeypatch):
        with nothing_made(sent):
            for x in range(12):
                sent.double.delay(x)
        assert [6, 6] == [live.broker.client.llen(f"{live.site.queue}-{x}") for x in (0, 1)]


def test_a_map_of_routes_needs_no_asking(open_site: SiteFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is that of the map."""
    live = open_site()
    app = live.app("lean")
    app.conf.task_routes = {"lean.*": {"queue": f"{live.site.queue}-lean", "priority": 3}}
    for sent in _sent(live, app, monkeypatch):
        sent.learn()
        assert 3 == json.loads(sent.newest(f"{live.site.queue}-lean"))["properties"]["priority"]


def test_the_caller_in_a_task_is_its_parent(sent: Sent) -> None:
    """The message says so."""
    sent.learn()

    @sent.app.task(bind=True)
    def parent(task: Any) -> str:
        sent.call((5,))
        return str(task.request.id)

    with nothing_made(sent):
        result = parent.apply(task_id="the parent")
    assert "the parent" == result.get()
    assert "the parent" == json.loads(sent.newest())["headers"]["parent_id"]


def test_each_kind_of_option_has_its_own(sent: Sent) -> None:
    """Values that are equal and mean different messages do not take each other's."""
    for priority in (1, True, 0, False, -1):
        for _ in range(LEARNED_FROM + 2):
            sent.call((1,), priority=priority)
            ours = sent.newest()
        with sent.app.producer_or_acquire() as producer:
            sent.call((1,), priority=priority, producer=producer)
        assert normal(sent.newest()) == normal(ours)
    with nothing_made(sent):
        for _ in range(LEARNED_FROM + 2):
            sent.call((1,), expires=60)
    expiries = {
        json.loads(raw)["headers"]["expires"] for raw in sent.live.broker.client.lrange(sent.live.site.queue, 0, -1)
    }
    assert LEARNED_FROM + 2 == len(expiries)


def test_a_task_that_expires_by_itself_tells_each_time_its_own(sent: Sent) -> None:
    """Options that the task brings are like those of the call."""
    sent.double.expires = 60
    with nothing_made(sent):
        for _ in range(LEARNED_FROM + 2):
            sent.double.delay(1)
    raws = sent.live.broker.client.lrange(sent.live.site.queue, 0, -1)
    assert LEARNED_FROM + 2 == len({json.loads(raw)["headers"]["expires"] for raw in raws})


def test_a_shadow_that_the_task_names_is_named_each_time(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An overridden ``shadow_name`` sees each call."""
    monkeypatch.setattr(type(sent.double), "shadow_name", lambda _, args, *__: f"doubling {args[0]}")
    for x in range(LEARNED_FROM + 2):
        sent.call((x,))
        assert f"doubling {x}" == json.loads(sent.newest())["headers"]["shadow"]


def test_bad_calls_are_refused_as_ever(sent: Sent) -> None:
    """Arguments that do not fit, or cannot be serialized: nothing is sent."""
    sent.learn()
    sent.newest()
    with pytest.raises(TypeError, match="double"):
        sent.double.delay(1, 2)
    with pytest.raises(EncodeError):
        sent.double.delay(object())
    with pytest.raises(TypeError, match="list or tuple"):
        sent.double.apply_async("a")
    assert 0 == sent.live.broker.client.llen(sent.live.site.queue)
    sent.call((7,))
    assert sent.last in sent.newest()


def test_a_call_says_who_it_is(sent: Sent) -> None:
    """An id of the caller's own is that of message and result."""
    sent.learn()
    result = sent.call((1,), task_id='an "id" of 100 %')
    assert 'an "id" of 100 %' == result.id
    assert result.id == json.loads(sent.newest())["headers"]["id"]


def test_many_calls_by_stencils(start_worker: WorkerFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered in order, whether or not there was a stencil for them."""
    worker = start_worker("lean")
    for sent in _sent(worker.live, worker.app, monkeypatch):
        double = worker.task("double")
        assert [2 * x for x in range(50)] == double.delay_many(range(50)).get(timeout=40)
        assert [2 * x for x in range(50)] == double.delay_many(range(50)).get(timeout=40)
        assert sent.made >= 90
        assert 14 == double.delay(7).get(timeout=40)
        with pytest.raises(ValueError, match="-7"):
            double.delay(-7).get(timeout=40)
        assert double.apply_async((7,), ignore_result=True).get(timeout=1) is None


def test_who_is_told_of_many_calls_is_told_when_they_have_left(sent: Sent) -> None:
    """As of single ones: the message is on its list by then."""
    there: list[int] = []

    def hear(**_: Any) -> None:
        there.append(sent.live.broker.client.llen(sent.live.site.queue))

    sent.learn()
    sent.newest()
    signals.after_task_publish.connect(hear)
    try:
        sent.double.delay_many([1, 2, 3])
    finally:
        signals.after_task_publish.disconnect(hear)
    assert [1, 2, 3] == there


def test_the_broker_was_away(
    open_site: SiteFixture, start_redis: RedisFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is sent again as Celery's settings say, once it is back."""
    redis = start_redis()
    live = open_site(redis=redis, settings={"broker_transport_options": {}})
    for sent in _sent(live, live.app("lean"), monkeypatch):
        sent.learn()
        for one in live.broker.client.client_list():
            if one["cmd"].startswith("lpush"):
                live.broker.client.client_kill_filter(_id=one["id"])
        sent.call((9,))
        assert sent.last in sent.newest()
        made = sent.made
        sent.call((9,))
        assert made + 1 == sent.made
