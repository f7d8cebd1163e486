"""Callers under gevent or eventlet: their calls take Celery's own way, and are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.worker_process import ROOT, WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

SCRIPTS = {
    "gevent": """
from gevent import monkey; monkey.patch_all()
from gevent.pool import Pool
""",
    "eventlet": """
import eventlet; eventlet.monkey_patch()
from eventlet import GreenPool as Pool
""",
}

CALLS = """
from tests.support.apps.lean import app
double = app.tasks["lean.double"]
print(list(Pool(10).imap(lambda x: double.delay(x).get(timeout=40), range(50))))
print(type(double.delay(1)).__name__)
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", SCRIPTS)
def test_green_callers_are_answered(shared_worker: WorkerFixture, kind: str) -> None:
    """Ten at a time."""
    worker = shared_worker("lean")
    env = {**os.environ, **worker.live.site.environ()}
    command = [sys.executable, "-c", SCRIPTS[kind] + CALLS]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert 0 == done.returncode, done.stderr
    assert [str([2 * x for x in range(50)]), "AsyncResult"] == done.stdout.split("\n")[:2]
