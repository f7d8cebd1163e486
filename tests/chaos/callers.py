"""Run as a program: callers in threads, which send their items until they are taken and wait for every answer.

A process of its own, as a web server is. `items.json` in its folder says what to send, `answers.json` what came.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis
from celery import Celery
from celery.states import READY_STATES
from kombu.exceptions import OperationalError

from tests.chaos.plan import Item
from tests.support.apps.chaotic import app

ITEMS, BEGUN, ANSWERS = "items.json", "begun", "answers.json"

#: Callers at the same time.
CALLERS = 8

#: Seconds after the last call until the callers give up.
GIVE_UP_S = 60.0

#: Seconds between two looks at the result backend, and between two attempts to send.
LOOK_S = 0.05

#: What a caller meets while Redis is away; the last is what Celery makes of a lost subscription.
AWAY = (OperationalError, redis.ConnectionError, redis.TimeoutError, RuntimeError)

#: A final state with the value, or with the type and the text of the error.
Outcome = list[Any]


@dataclass
class Call:
    """One call as its caller sees it; seconds of the machine's monotonic clock."""

    number: int
    sent: float | None = None
    answered: float | None = None
    outcome: Outcome | None = None


def id_of(number: int) -> str:
    """The task id that the caller gives an item, the same for each attempt to send it."""
    return f"item-{number}"


def outcomes(app: Celery, numbers: Sequence[int]) -> dict[int, Outcome]:
    """The outcomes that the result backend has by now."""
    backend: Any = app.backend
    payloads = backend.mget([backend.get_key_for_task(id_of(number)) for number in numbers])
    found = {}
    for number, payload in zip(numbers, payloads, strict=True):
        if payload is not None:
            meta = backend.decode_result(payload)
            if meta["status"] in READY_STATES:
                found[number] = outcome(meta["status"], meta["result"])
    return found


def outcome(status: str, value: Any) -> Outcome:
    """What of a result two processes can compare."""
    return [status, type(value).__name__, str(value)] if isinstance(value, BaseException) else [status, value]


class Caller:
    """Sends its items, each at its time, and asks for the answers of those that are on their way."""

    def __init__(self, items: Sequence[Item], began: float) -> None:
        """Count the items' seconds from `began` on."""
        self._items, self._began = list(items), began
        self._calls = {item.number: Call(item.number) for item in items}
        self._waiting: list[int] = []

    def run(self) -> list[Call]:
        """Work until all is answered, or until nobody would wait any longer."""
        give_up = self._began + self._items[-1].at + GIVE_UP_S
        while (self._items or self._waiting) and time.monotonic() < give_up:
            with suppress(*AWAY):  # this is what the callers are patient about
                self._send_due()
                self._collect()
            time.sleep(LOOK_S)  # noqa: TID251 - the pause between two looks, not a guess at a duration
        return list(self._calls.values())

    def _send_due(self) -> None:
        while self._items and self._began + self._items[0].at <= time.monotonic():
            item = self._items[0]
            send(item)
            self._calls[item.number].sent = time.monotonic()
            self._waiting.append(item.number)
            del self._items[0]

    def _collect(self) -> None:
        if self._waiting:
            for number, found in outcomes(app, self._waiting).items():
                call = self._calls[number]
                call.answered, call.outcome = time.monotonic(), found
                self._waiting.remove(number)


def send(item: Item) -> None:
    """Send one call.

    Raises:
        redis.ConnectionError: also where kombu looks at a channel that another thread has closed meanwhile.
    """
    try:
        app.tasks["chaotic.model"].apply_async((item.number, item.kind), task_id=id_of(item.number))
    except AttributeError as error:
        if (error.obj, error.name) != (None, "client"):
            raise
        raise redis.ConnectionError("the channel was closed under a publish") from error


def main() -> None:
    """Let the callers work; the site is in the environment."""
    items = [Item(**item) for item in json.loads(Path(ITEMS).read_text())]
    began = time.monotonic()
    Path(BEGUN).write_text(str(began))
    callers = [Caller(mine, began) for n in range(CALLERS) if (mine := items[n::CALLERS])]
    with ThreadPoolExecutor(CALLERS) as threads:
        calls = [call for calls in threads.map(Caller.run, callers) for call in calls]
    Path(ANSWERS).write_text(json.dumps([asdict(call) for call in sorted(calls, key=lambda call: call.number)]))


if __name__ == "__main__":
    sys.exit(main())
