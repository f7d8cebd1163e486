"""Run as a program: a client's process, which calls a task from some threads and leaves the answers in a file.

A process of its own, since Celery gives each thread a result backend whose connections nobody closes.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from celery import Task
from celery.exceptions import TimeoutError as GivenUpError

#: The file in the working directory.
ANSWERS = "answers.json"

Call = Callable[[int], Any]


def patient(task: Task) -> Call:
    """Calls that wait for their answer."""
    return lambda x: task.delay(x).get(timeout=60)


def hurried(task: Task) -> Call:
    """Calls that give up after 10 ms and forget the result, as the manual says; the answer is whether they did."""

    def call(x: int) -> bool:
        result = task.delay(x)
        try:
            result.get(timeout=0.01)
        except GivenUpError:
            result.forget()
            return True
        return False

    return call


def flask(task: Task) -> Call:
    """Visits to a page of a Flask app that waits for the answer and shows it."""
    from flask import Flask  # noqa: PLC0415  only some clients have it

    web = Flask("web")

    @web.get("/call/<int:x>")
    def view(x: int) -> str:
        return str(task.delay(x).get(timeout=60))

    return lambda x: int(web.test_client().get(f"/call/{x}").text)


KINDS = {"patient": patient, "hurried": hurried, "flask": flask}


def from_threads(call: Call, items: range, count: int) -> list[Any]:
    """The answers; so many threads begin together and take items until there are no more."""
    waiting, start = iter(enumerate(items)), Barrier(count)

    def work(_: int) -> list[tuple[int, Any]]:
        start.wait()
        return [(number, call(item)) for number, item in waiting]

    with ThreadPoolExecutor(count) as threads:
        return [answer for _, answer in sorted(pair for pairs in threads.map(work, range(count)) for pair in pairs)]


def main() -> None:
    """Call the task with the numbers from `first` on; the site is in the environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("task")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    wish = parser.parse_args()
    task = importlib.import_module(f"tests.support.apps.{wish.module}").app.tasks[wish.task]
    items = range(wish.first, wish.first + wish.calls)
    answers = from_threads(KINDS[wish.kind](task), items, wish.threads)
    Path(ANSWERS).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
