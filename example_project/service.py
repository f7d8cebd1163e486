"""The service's three processes - Redis, the worker with the model, the web page - for as long as a block lasts."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from example_project import settings
from example_project.local_redis import URL_VARIABLE, open_redis
from example_project.processes import ChildProcess, signals_held, wait_until
from example_project.tasks import app, embed

if TYPE_CHECKING:
    from contextlib import ExitStack

__all__ = ["Service", "start_service"]

#: Celery lets these override what the app itself says.
_OVERRIDES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND")

#: Seconds the worker may take to load its model.
_LOADING = 300.0

#: Flask's line with the address it listens on.
_ADDRESS = re.compile(r"Running on http://(\S+)")


@dataclass(frozen=True)
class Service:
    """The running service.

    Attributes:
        worker: the Celery worker; its log is ``worker.text()``.
        web: the Flask app.
    """

    worker: ChildProcess
    web: ChildProcess

    def check(self) -> None:
        """Raise ProcessDiedError unless the worker and the web page are up."""
        self.worker.check()
        self.web.check()

    def wait_for_worker(self) -> None:
        """Return once the worker has answered a call, for which it loads its model."""
        # Loading may take longer than a caller would wait.
        result = embed.apply_async(("Are you ready?",), expires=_LOADING)
        wait_until(result.ready, "the worker's first answer", self.worker, _LOADING)
        result.forget()

    def wait_for_web(self) -> str:
        """Return ``host:port`` of the page once it is up."""
        wait_until(lambda: bool(_ADDRESS.search(self.web.text())), "the web page", self.web)
        (address,) = set(_ADDRESS.findall(self.web.text()))
        return str(address)


def start_service(stack: ExitStack) -> Service:
    """Start everything, without waiting for it to be ready; leaving ``stack`` ends it in reverse order.

    This process's own calls go to the same Redis.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="celery-batching-demo-")))
    with signals_held():
        redis = stack.enter_context(open_redis())
    _prepare(redis.url, folder)
    worker = ["-m", "celery", "-A", "example_project.tasks", "worker", "-Q", settings.QUEUE, "--concurrency=1"]
    worker += ["--loglevel=INFO", f"--hostname=demo-{os.getpid()}@%h"]
    # Port 0: the system picks a free one, and Flask prints it.
    web = ["-m", "flask", "--app", "example_project.flask_app", "run", "--host=127.0.0.1", "--port=0", "--no-reload"]
    return Service(_start(stack, "worker", worker, folder), _start(stack, "web page", web, folder))


def _prepare(url: str, folder: Path) -> None:
    """Point this process and the children to come to the Redis at ``url``, and to ``folder`` for temporary files."""
    for name in _OVERRIDES:
        os.environ.pop(name, None)
    os.environ[URL_VARIABLE] = url
    app.conf.update(broker_url=url, result_backend=url)
    # What torch and a killed worker leave behind goes with the folder.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # torch takes every core by default, and on a CPU its threads then wait for those that the callers
    # and Redis have pushed aside. One core is theirs.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) - 1)))


def _start(stack: ExitStack, name: str, arguments: list[str], folder: Path) -> ChildProcess:
    # Unbuffered, so that the log is there to be read.
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with signals_held():
        return stack.enter_context(ChildProcess(name, [sys.executable, *arguments], folder / name, env))
