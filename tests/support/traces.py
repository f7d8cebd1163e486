"""Traces: what was seen of one call and of all that it led to, as text that two kinds of tasks must share."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Also the channel on which a process is told its results.
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|celery_batching\.reply\.[0-9a-f]{32}")

#: The process that sent a message: `gen123@host`, where 123 is its pid.
ORIGIN = re.compile(r"gen\d+@")

#: Where an object is in memory.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")

#: Moments, durations and processes: whether there is one must agree, which one cannot.
VARYING = {
    *("timestamp", "local_received", "clock", "utcoffset", "date_done", "eta", "expires", "expiration"),
    *("time_start", "runtime", "pid", "delivery_tag"),
}

TRACEBACK = "Traceback (most recent call last)"

#: What the lines of a traceback begin with that are about places in the code, not about errors.
PLACES = ("Traceback ", " ", "The above exception", "During handling")

#: The streams of a trace. In each of them the order counts; between them it may differ from run to run:
#: the pool works on beside the main process, which may receive the message of a retry before it hears of it.
ARRIVALS, STORED, POOL, MAIN, EVENTS = STREAMS = ("arrivals", "stored", "pool", "main", "events")

#: What the main process does.
IN_MAIN = ("task_revoked", "task_rejected", "task_unknown", "message ")


@dataclass(frozen=True)
class Seen:
    """One thing seen of a task: the stream it was seen in, what it was, and the facts."""

    task_id: str
    stream: str
    what: str
    facts: Any


Trace = list[Seen]


def states(trace: Trace) -> str:
    """The states that were stored: of a task separated by spaces, of tasks by slashes."""
    stored = defaultdict(list)
    for seen in trace:
        stored[seen.task_id] += [seen.facts["status"]] if seen.stream == STORED else []
    return " / ".join(" ".join(of_task) for of_task in stored.values())


def closed_once(trace: Trace) -> Trace:
    """The trace of a killed item without all but the last of several ends; a plain task has two at a hard limit."""
    ends = {"FAILURE", "task_failure", "task-failed"}
    last = {one.what: one for one in trace if one.what in ends}
    return [one for one in without_last_words(trace) if one is last.get(one.what, one)]


def without_last_words(trace: Trace) -> Trace:
    """The trace without the postrun of a process that ends, for which it may or may not find the time."""
    return [one for one in trace if one.what != "task_postrun" or one.facts["facts"]["state"]]


def one_prologue(trace: Trace) -> Trace:
    """The trace without what a second process did again before the run, after the loss of the first."""
    pids: dict[str, set[int]] = {"STARTED": set(), "task_prerun": set(), "before_start": set()}
    kept = []
    for one in without_last_words(trace):
        if one.what in pids:
            pid = one.facts["result" if one.stream == STORED else "seen"]["pid"]
            known = pids[one.what]
            if known and pid not in known:
                continue
            known.add(pid)
        kept.append(one)
    return kept


def difference(expected: Trace, actual: Trace, names: Mapping[str, str]) -> str:
    """What the lines of two traces differ in; empty if in nothing but names and moments.

    Args:
        expected: the oracle's.
        actual: the one to check.
        names: names that differ, each with the word to put in its place.
    """
    left, right = (list(lines(trace, names)) for trace in (expected, actual))
    return "\n".join(difflib.unified_diff(left, right, "plain task", "batch task", n=4, lineterm=""))


def lines(trace: Trace, names: Mapping[str, str]) -> Iterable[str]:
    """The trace as text, sorted by task and stream, with the varying things replaced."""
    streams: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for task_id in dict.fromkeys(seen.task_id for seen in trace):
        for stream in STREAMS:
            streams[task_id, stream] = [one for one in trace if (one.task_id, one.stream) == (task_id, stream)]
    text = "\n".join(
        f"{seen.task_id} {stream}: {seen.what}\n{json.dumps(steady(seen.facts), indent=1, sort_keys=True)}"
        for (_, stream), all_seen in streams.items()
        for seen in all_seen
    )
    for name, word in names.items():
        text = text.replace(name, word)
    text = ADDRESS.sub(" at ADDRESS", ORIGIN.sub("ORIGIN@", text))
    for number, uuid in enumerate(dict.fromkeys(UUID.findall(text)), 1):
        text = text.replace(uuid, f"ID{number}")
    return text.splitlines()


def steady(value: Any, key: str = "") -> Any:
    """The same, without what differs from run to run."""
    if isinstance(value, dict):
        return {name: steady(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return [steady(entry) for entry in value]
    if value is not None and key in VARYING:
        return f"some {key}"
    if isinstance(value, str) and TRACEBACK in value:
        errors = (line for line in value.splitlines() if line.strip(' "') and not line.startswith(PLACES))
        return list(dict.fromkeys(errors))
    return value


def stream_of(what: str) -> str:
    """The stream of a signal, handler or end of a message."""
    if what == "task_received":
        return ARRIVALS
    return MAIN if what.startswith(IN_MAIN) else POOL
