"""A real worker as a child process: started by the celery command line, watched through its log."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from celery import Celery, Task

from tests.support.child_process import ChildProcess
from tests.support.journal import Journal
from tests.support.sites import LiveSite

#: The folder that holds `tests`, from which a worker imports its app.
ROOT = Path(__file__).parents[2]

#: Seconds a worker may take until it answers (about 2 on a free machine).
START_S = 60.0

#: Seconds for one answer to remote control. What was asked while a worker had no connection is lost: it is asked again.
ANSWER_S = 5.0

#: More late answers than there can be to questions that were given up.
MANY = 1000

#: Without the second that a worker otherwise waits for its neighbours at start.
ALONE = ("--without-mingle", "--without-gossip")

BATCH_LINE = re.compile(
    r"Batch (?P<task>\S+) size=(?P<size>\d+) reason=(?P<reason>\w+)"
    r" waited=(?P<waited>[\d.]+)s run=(?P<run>[\d.]+)s"
    r" succeeded=(?P<succeeded>\d+) failed=(?P<failed>\d+) retried=(?P<retried>\d+)"
)


@dataclass(frozen=True)
class BatchLine:
    """What the worker logs about one batch; times in seconds."""

    task: str
    size: int
    reason: str
    waited: float
    run: float
    succeeded: int
    failed: int
    retried: int


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How a worker is started; equal options mean that tests may share it."""

    module: str
    pool: str = "prefork"
    concurrency: int = 1
    loglevel: str = "INFO"
    #: More arguments of the command line.
    extra: tuple[str, ...] = ()
    #: More environment variables, in pairs.
    env: tuple[tuple[str, str], ...] = ()
    #: What a worker is spared for the sake of a fast start.
    spared: tuple[str, ...] = ALONE

    def argv(self, node: str, queue: str) -> list[str]:
        """The command line of a worker with that name on that queue."""
        app = f"tests.support.apps.{self.module}"
        argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", node]
        argv += ["-P", self.pool, "-c", str(self.concurrency), "-l", self.loglevel]
        # Last, so that the caller's own -Q counts.
        return [*argv, *self.spared, "-Q", queue, *self.extra]


class WorkerProcess(ChildProcess):
    """A worker at a site, ready to take work, with the client's view of it."""

    def __init__(self, live: LiveSite, options: WorkerOptions, folder: Path) -> None:
        """Start the worker; `wait_ready` waits until it answers."""
        self.live, self.options = live, options
        self.node = f"w{secrets.token_hex(4)}@localhost"
        self._mark = 0
        argv = options.argv(self.node, live.site.queue)
        super().__init__(argv, folder=folder, env=self._environment())

    @property
    def app(self) -> Celery:
        """The client's instance of the worker's app."""
        return self.live.app(self.options.module)

    @property
    def journal(self) -> Journal:
        """What the tasks tell, and the gates at which they wait."""
        return self.live.journal

    def task(self, name: str) -> Task[Any, Any]:
        """The client's task of that name, without the name of the app module."""
        return self.app.tasks[f"{self.options.module}.{name}"]

    def wait_ready(self) -> None:
        """Wait until the worker says that it is ready, and answers."""
        self.wait_for(lambda: " ready." in self.log(), f"{self.node} says ready", START_S)
        self.wait_for(self.ping, f"{self.node} answers a ping", START_S)

    def ping(self) -> bool:
        """Whether the worker's loop answers; all that it logged before is then in the log."""
        return first_answer(self.app.control.ping, destination=[self.node]) is not None

    def begin_test(self) -> None:
        """Forget the tests before: `log` and `batches` start here, the journal is empty."""
        self.wait_for(self.ping, f"{self.node} answers a ping")
        self._mark = len(super().log())
        self.journal.reset()

    def log(self) -> str:
        """What the worker has logged since this test began."""
        return super().log()[self._mark :]

    def batches(self) -> list[BatchLine]:
        """The batches that the worker has logged since this test began."""
        return [parse_batch(found.groupdict()) for found in BATCH_LINE.finditer(self.log())]

    def drop_broker_connections(self) -> None:
        """Cut the worker's connections to its broker; the client keeps its own."""
        ports = {
            one.laddr.port for pid in (self.pid, *self.children()) for one in psutil.Process(pid).net_connections("tcp")
        }
        self.live.broker.drop_connections(ports)

    def inspect(self, command: str, **arguments: Any) -> Any:
        """The worker's answer to an inspect command: `worker.inspect("active")`."""
        return self._answer(partial(self.app.control.broadcast, command, arguments=arguments, reply=True))

    def control(self, method: str, *args: Any, **options: Any) -> Any:
        """The answer to a method of `app.control`, which the worker has then obeyed: `worker.control("revoke", id)`."""
        return self._answer(partial(getattr(self.app.control, method), *args, reply=True, **options))

    def _answer(self, ask: Callable[..., Any]) -> Any:
        ask = partial(first_answer, ask, destination=[self.node])
        answers: dict[str, Any] = self.wait_for(ask, f"{self.node} answers", START_S)
        return answers[self.node]

    def _environment(self) -> dict[str, str]:
        # Options of the plugin come from the test alone.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("CELERY_BATCHING_")}
        path = os.pathsep.join([str(ROOT), inherited.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        own = {"PYTHONPATH": path, **self.live.site.environ()}
        return {**inherited, **own, **dict(self.options.env)}


class _AnswerError(Exception):
    """Ends the wait for answers with the first one."""


def first_answer(ask: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any] | None:
    """The first answer to a command of remote control, by node; None when there is none in time.

    Celery itself stops after so many messages as it wants answers, of which one may be the late
    answer to a question that was given up.
    """

    def stop(answer: dict[str, Any]) -> None:
        raise _AnswerError(answer)

    try:
        ask(*args, timeout=ANSWER_S, limit=MANY, callback=stop, **options)
    except _AnswerError as found:
        answer: dict[str, Any] = found.args[0]
        return answer
    return None


def worker_options(
    module: str, *, extra: Sequence[str] = (), env: Mapping[str, str] | None = None, **others: Any
) -> WorkerOptions:
    """The options from what a test writes: a list of arguments, a dict of variables."""
    pairs = tuple(sorted((env or {}).items()))
    return WorkerOptions(module=module, extra=tuple(extra), env=pairs, **others)


def parse_batch(found: Mapping[str, str]) -> BatchLine:
    """The values of a batch line, from its words."""
    return BatchLine(
        task=found["task"],
        size=int(found["size"]),
        reason=found["reason"],
        waited=float(found["waited"]),
        run=float(found["run"]),
        succeeded=int(found["succeeded"]),
        failed=int(found["failed"]),
        retried=int(found["retried"]),
    )
