"""``python -m benchmarks.client``: a client process of one system. Prints one line of JSON at its end.

Runs in the environment of its system, so it imports nothing but Celery and the system's app.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from .apps.common import STAGED
from .callers import ANSWER_S, Callers, poisson
from .payload import answer, payload

#: What a client prints when its callers are connected.
READY = "ready"

#: Threads that warm a worker up.
WARM_UP_THREADS = 8

#: The most answers that are read in one round trip.
CHUNK = 1000

#: Seconds between two looks whether the start is given.
POLL_S = 0.01


def main() -> int:
    """Do one thing with the task of the app that is named, and print what came of it."""
    options = _options()
    task = importlib.import_module(options.app).call
    print(json.dumps(options.act(task, options)), flush=True)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client", description=__doc__)
    parser.add_argument("app", help="module of the app")
    acts = parser.add_subparsers(required=True)
    for name, act in (("warm", _warm), ("send", _send), ("check", _check)):
        one = acts.add_parser(name, help=act.__doc__)
        one.add_argument("--items", type=int, required=True)
        one.add_argument("--first", type=int, default=0, help="index of the first item")
        one.set_defaults(act=act)
    load = acts.add_parser("load", help=_load.__doc__)
    load.add_argument("--callers", type=int, required=True)
    load.add_argument("--seconds", type=float, required=True)
    load.add_argument("--start", type=Path, required=True, help="file in which the moment to start will stand")
    load.add_argument("--rate", type=float, help="calls per second, for an open loop")
    load.add_argument("--seed", type=int, default=0, help="of the open loop's chance")
    load.set_defaults(act=_load)
    return parser.parse_args()


def _warm(task: Any, options: argparse.Namespace) -> Any:
    """Make calls that nobody measures."""

    def is_wrong(index: int) -> bool:
        text = payload(index)
        return bool(task.delay(text).get(timeout=ANSWER_S) != answer(text))

    with ThreadPoolExecutor(WARM_UP_THREADS) as threads:
        return {"wrong": sum(threads.map(is_wrong, _indexes(options)))}


def _send(task: Any, options: argparse.Namespace) -> Any:
    """Send calls to the queue that nobody consumes, and wait for none."""
    for index in _indexes(options):
        task.apply_async((payload(index),), task_id=_task_id(index), queue=STAGED)
    return {}


def _check(task: Any, options: argparse.Namespace) -> Any:
    """Count the stored answers that are missing, failed or wrong, of those calls."""
    backend = task.app.backend
    found: Counter[bool] = Counter()
    indexes = _indexes(options)
    for start in range(0, len(indexes), CHUNK):
        chunk = indexes[start : start + CHUNK]
        stored = backend.mget([backend.get_key_for_task(_task_id(index)) for index in chunk])
        for index, one in zip(chunk, stored, strict=True):
            meta = backend.decode_result(one) if one else {}
            found[meta.get("status") == "SUCCESS" and meta.get("result") == answer(payload(index))] += 1
    return {"wrong": found[False]}


def _load(task: Any, options: argparse.Namespace) -> Any:
    """Call from concurrent threads, in a closed or an open loop."""
    arrivals = None if options.rate is None else poisson(options.rate, options.seed)
    callers = Callers(task, options.callers, options.seconds, arrivals)
    callers.connect()
    print(READY, flush=True)
    while not options.start.exists():
        time.sleep(POLL_S)
    return callers.call(float(options.start.read_text()))


def _indexes(options: argparse.Namespace) -> range:
    return range(options.first, options.first + options.items)


def _task_id(index: int) -> str:
    return str(UUID(int=index))


if __name__ == "__main__":
    sys.exit(main())
