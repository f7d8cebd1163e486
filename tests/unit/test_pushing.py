"""One connection, many threads: whatever happens to one message, each thread hears of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004 - redis-py's name

from celery_batching.transport.pushing import MOST_IN_ONE, Pushing


class Wire:
    """Stands in for redis-py's connection, and answers as the test says."""

    def __init__(self) -> None:
        """Nothing has been sent."""
        self.sent: list[list[str]] = []
        self.answers: list[Any] = []
        self.lost = 0
        self.on_read: Any = None

    def pack_command(self, *words: str | bytes) -> list[bytes]:
        return [b" ".join(word if isinstance(word, bytes) else word.encode() for word in words)]

    def send_packed_command(self, parts: list[bytes]) -> None:
        self.sent.append([part.decode() for part in parts])

    def read_response(self) -> int:
        if self.on_read is not None:
            self.on_read()
        answer = self.answers.pop(0) if self.answers else 1
        if isinstance(answer, BaseException):
            raise answer
        return int(answer)

    def disconnect(self) -> None:
        self.lost += 1


def test_an_error_of_one_message_is_its_own() -> None:
    """Its neighbours in the same round trip are on their lists."""
    wire = Wire()
    pushing = Pushing(wire)
    wire.answers = [1, ResponseError("WRONGTYPE"), 1]
    with pushing.held() as pushes:
        for key in "abc":
            pushing.push(key, "text")
    assert [None, "WRONGTYPE", None] == [push.error and str(push.error) for push in pushes]
    assert [["LPUSH a text", "LPUSH b text", "LPUSH c text"]] == wire.sent
    assert 0 == wire.lost


def test_messages_for_one_list_are_one_command() -> None:
    """In their order; what goes to another list stands between them."""
    wire = Wire()
    pushing = Pushing(wire)
    wire.answers = [2, ResponseError("OOM"), 1]
    with pushing.held() as pushes:
        for key, text in (("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), ("a", "5")):
            pushing.push(key, text)
    assert [["LPUSH a 1 2", "LPUSH b 3 4", "LPUSH a 5"]] == wire.sent
    assert [None, None, "OOM", "OOM", None] == [push.error and str(push.error) for push in pushes]


def test_what_cannot_be_encoded_is_its_callers_alone() -> None:
    """It never reaches the connection that others use."""
    wire = Wire()
    pushing = Pushing(wire)
    with pushing.held():
        pushing.push("a", "1")
        with pytest.raises(UnicodeEncodeError):
            pushing.push("\ud800", "2")
    assert [["LPUSH a 1"]] == wire.sent
    assert 0 == wire.lost


def test_no_command_is_too_long() -> None:
    """A long list of calls is several commands, still in one round trip."""
    wire = Wire()
    pushing = Pushing(wire)
    with pushing.held():
        for number in range(2 * MOST_IN_ONE + 1):
            pushing.push("a", str(number))
    (sent,) = wire.sent
    assert [MOST_IN_ONE, MOST_IN_ONE, 1] == [len(command.split()) - 2 for command in sent]
    assert [str(number) for number in range(2 * MOST_IN_ONE + 1)] == [
        word for command in sent for word in command.split()[2:]
    ]


def test_a_lost_connection_is_told_to_those_without_an_answer() -> None:
    """What was answered before stays answered."""
    wire = Wire()
    pushing = Pushing(wire)
    wire.answers = [1, ConnectionError("gone")]
    with pushing.held() as pushes:
        for key in "abc":
            pushing.push(key, "text")
    assert [None, "gone", "gone"] == [push.error and str(push.error) for push in pushes]
    assert 1 == wire.lost
    pushing.push("d", "text")  # the next one connects again


@pytest.mark.parametrize("raised", [KeyboardInterrupt(), ZeroDivisionError("of a signal's handler")])
def test_what_interrupts_one_thread_is_not_raised_in_others(raised: BaseException) -> None:
    """The others hear that the connection was lost, and can send again; no message counts as sent."""
    wire = Wire()
    pushing = Pushing(wire)
    reading, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        reading.set()
        go_on.wait(10)
        raise raised

    wire.on_read = stand_still
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(pushing.push, "a", "text")
        reading.wait(10)
        wire.on_read = None
        second = threads.submit(pushing.push, "b", "text")
        go_on.set()
        assert first.exception(10) is raised
        assert second.exception(10) is None
    assert [["LPUSH a text"], ["LPUSH b text"]] == wire.sent


def test_a_finalizer_that_calls_in_the_midst_of_a_push_does_not_hang() -> None:
    """The collector may run anywhere, also where this thread has the connection."""
    wire = Wire()
    pushing = Pushing(wire)
    inner: list[Any] = []

    def finalizer() -> None:
        wire.on_read = None
        with pytest.raises(ConnectionError, match="in use"):
            pushing.push("b", "text")
        inner.append("done")

    wire.on_read = finalizer
    pushing.push("a", "text")
    assert ["done"] == inner


def test_nothing_leaves_when_the_block_raises() -> None:
    """What was held is forgotten."""
    wire = Wire()
    pushing = Pushing(wire)
    with pytest.raises(ZeroDivisionError), pushing.held():
        pushing.push("a", "text")
        raise ZeroDivisionError
    assert [] == wire.sent
    pushing.push("b", "text")
    assert [["LPUSH b text"]] == wire.sent


def test_concurrent_messages_share_round_trips() -> None:
    """Each is sent once, and those that come while one round trip is under way leave in the next."""
    wire = Wire()
    pushing = Pushing(wire)
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: pushing.push(f"k{number}", "text"), range(400)))
    assert sorted(f"LPUSH k{number} text" for number in range(400)) == sorted(
        message for sent in wire.sent for message in sent
    )
