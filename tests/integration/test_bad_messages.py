"""Messages that are no proper call, among good ones: each fails alone and clearly, and the worker lives (case 62)."""

from __future__ import annotations

import gzip
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from celery.result import AsyncResult

from tests.support.messages import Message, message_for
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]
Spoil = Callable[[Message], Message]

PLACES = [("prefork", "redis"), ("threads", "rabbitmq")]
TASKS = ["double", "double_alone"]


def body(text: str | bytes) -> Spoil:
    return lambda message: message.but(body=text)


def header(**headers: Any) -> Spoil:
    return lambda message: message.with_headers(**headers)


#: What is wrong with the body -> (how to make it so, what the caller is told).
BODIES: dict[str, tuple[Spoil, str]] = {
    "broken JSON": (body('[[1], {}, {"x": '), "JSON|[Dd]ecode|Expecting"),
    "no bytes": (body(b""), "body must be .* got b?''"),
    "not UTF-8": (body(b"\xff\xfe\xfa"), "[Dd]ecode|utf"),
    "a number": (body("42"), "body must be .* got 42"),
    "null": (body("null"), "body must be .* got None"),
    "true": (body("true"), "body must be .* got True"),
    "text": (body('"abc"'), "body must be .* got 'abc'"),
    "an empty list": (body("[]"), "body must be .* got "),
    "a list of numbers": (body("[1, 2, 3]"), "body must be .* got "),
    "a dict": (body('{"no": "tuple"}'), "body must be .* got .*no"),
    "only the arguments": (body("[[1]]"), "body must be .* got "),
    "without the embedded part": (body("[[1], {}]"), "body must be .* got "),
    "arguments that are a number": (body("[1, {}, {}]"), "body must be .* got "),
    "arguments that are text": (body('["abc", {}, {}]'), "body must be .* got "),
    "keywords that are a list": (body("[[1], [2], {}]"), "body must be .* got "),
    "an embedded part that is a number": (body("[[1], {}, 5]"), "body must be .* got "),
    "one part too many": (body("[[1], {}, {}, {}]"), "body must be .* got "),
    "a forbidden content type": (
        lambda message: message.but(
            body=pickle.dumps(((1,), {}, {})), content_type="application/x-python-serialize", content_encoding="binary"
        ),
        "pickle|untrusted|[Rr]efus",
    ),
    "an unknown content type": (lambda message: message.but(content_type="application/x-unheard-of"), "unheard-of"),
    "compressed garbage": (
        lambda message: message.but(body=b"\xff, no gzip").with_headers(compression="application/x-gzip"),
        "decompressing",
    ),
    "an unknown compression": (header(compression="application/x-unheard-of"), "unheard-of"),
    "compressed but cut off": (
        lambda message: message.but(body=gzip.compress(b'[[1], {}, {"x": 1}]' * 9)[:-9]).with_headers(
            compression="application/x-gzip"
        ),
        "decompress|stream|incomplete|truncated",
    ),
    "arguments the task does not take": (body('[[1, 2, 3, 4], {"y": 5}, {}]'), "argument"),
}

#: What is wrong with a header.
HEADERS: dict[str, tuple[Spoil, str]] = {
    "a time limit that is text": (header(timelimit="soon"), "timelimit"),
    "a time limit of one part": (header(timelimit=[5]), "timelimit"),
    "time limits that are text": (header(timelimit=["a", "b"]), "timelimit"),
    "a time limit that is a dict": (header(timelimit={"soft": 5}), "timelimit"),
    "a number for both time limits": (header(timelimit=5), "timelimit"),
    "an ETA that is no time": (header(eta="tomorrow"), "eta|ETA"),
    "an ETA that is a number": (header(eta=5), "eta|ETA"),
    "an expiry that is no time": (header(expires="never"), "expires"),
    "stamps that are a number": (header(stamps=5, stamped_headers=7), "stamp"),
    "an unknown task": (header(task="control.nobody"), "control.nobody"),
}


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
def test_bad_bodies_fail_alone(shared_worker: WorkerFixture, pool: str, broker: str, task: str) -> None:
    """A body that is no call fails for its caller, saying why; its neighbours resolve, the worker lives (case 62)."""
    assert_each_fails_alone(shared_worker("control", pool=pool, broker=broker), task, BODIES)


@pytest.mark.parametrize(("pool", "broker"), PLACES)
@pytest.mark.parametrize("task", TASKS)
def test_bad_headers_fail_alone(shared_worker: WorkerFixture, pool: str, broker: str, task: str) -> None:
    """A header that makes no sense fails for its caller, saying why; its neighbours resolve (case 62)."""
    assert_each_fails_alone(shared_worker("control", pool=pool, broker=broker), task, HEADERS)


def assert_each_fails_alone(worker: WorkerProcess, name: str, kinds: Mapping[str, tuple[Spoil, str]]) -> None:
    """Send one message of each kind, a good one before and behind each of them."""
    task = worker.task(name)
    bad: dict[str, AsyncResult] = {}
    with worker.journal.closed_gate():
        good = [task.delay(0)]
        for x, (kind, (spoil, _)) in enumerate(kinds.items(), 1):
            bad[kind] = spoil(message_for(task, x)).publish(worker.app)
            good.append(task.delay(x))

    assert [2 * x for x in range(len(good))] == [result.get(timeout=40) for result in good]
    wait_until(
        lambda: all(result.ready() for result in bad.values()),
        "every caller is told",
        saw=lambda: [kind for kind, result in bad.items() if not result.ready()],
    )
    ends = {kind: (result.state, str(result.result)) for kind, result in bad.items()}
    assert {} == {
        kind: (state, text)
        for kind, (state, text) in ends.items()
        if state != "FAILURE" or not re.search(kinds[kind][1], text)
    }
    worker.wait_for(worker.ping, "the worker lives")
