"""Run as a program: a client process that calls a task with some numbers and prints what it got, as JSON.

`python -m tests.support.client results results.square 0 20` makes 20 calls, of 0 to 19; the site is in the environment.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(module: str, task_name: str, first: str, end: str) -> None:
    """Make all calls, then wait for all results."""
    app = importlib.import_module(f"tests.support.apps.{module}").app
    calls = [app.tasks[task_name].delay(x) for x in range(int(first), int(end))]
    print(json.dumps([call.get(timeout=30) for call in calls]))  # noqa: T201 - the answer to the test


if __name__ == "__main__":
    main(*sys.argv[1:])
