"""Callers in a process of their own, with threads as a web process has them."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from celery import Task

from tests.support import client
from tests.support.child_process import ChildProcess
from tests.support.sites import LiveSite
from tests.support.worker_process import ROOT

#: Seconds for all calls of one client on a busy machine.
CALLS_S = 100.0


def start_callers(
    live: LiveSite, folder: Path, task: Task, *, calls: int, threads: int, first: int = 0, kind: str = "patient"
) -> ChildProcess:
    """A client's process whose threads call the task with the numbers from `first` on; see `client.KINDS`."""
    argv = [sys.executable, "-m", client.__name__, task.name.partition(".")[0], task.name, kind]
    argv += ["--first", str(first), "--calls", str(calls), "--threads", str(threads)]
    env = {**os.environ, **live.site.environ(), "PYTHONPATH": str(ROOT)}
    return ChildProcess(argv, folder=Path(mkdtemp(dir=folder)), env=env)


def answers_to(callers: ChildProcess) -> list[Any]:
    """What the callers got, in the order of their numbers."""
    assert 0 == callers.wait(CALLS_S), callers.log()
    answers: list[Any] = json.loads((callers.folder / client.ANSWERS).read_text())
    return answers


def call_from_threads(live: LiveSite, folder: Path, task: Task, **wishes: Any) -> list[Any]:
    """Start callers as `start_callers` does, and return their answers."""
    return answers_to(start_callers(live, folder, task, **wishes))
