"""pytest-celery's nodes as processes of this machine, where its own are containers.

Its fixtures talk to a node through the methods that are here; none of them wants Docker.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals

from pytest_celery import CeleryWorkerContainer, RedisContainer

from tests.support.child_process import ChildProcess
from tests.support.sites import RedisDb

#: Seconds for a worker to start.
START_S = 60.0


class RedisNode(RedisContainer):
    """A database of the Redis server that the tests have started."""

    def __init__(self, db: RedisDb) -> None:
        """Show that database as a node."""
        self._db = db

    @property
    def celeryconfig(self) -> dict[str, str]:
        """Where the database is, for the worker and for the client alike."""
        return {"url": self._db.url, "host_url": self._db.url}

    def ready(self) -> bool:
        """It is: the server answered before the database could be claimed."""
        return True


class WorkerNode(CeleryWorkerContainer):
    """A worker that runs pytest-celery's generated app from a folder."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        content: Mapping[str, bytes],
        folder: Path,
    ) -> None:
        """Write the app's files and start the worker."""
        self._folder = folder
        self._id = secrets.token_hex(32)
        for name, source in content.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source)
        # A name of its own for each worker: all share this machine's host name.
        self._argv = [sys.executable, "-m", *(one.replace("%h", self._id[:12]) for one in command)]
        self._env = {**os.environ, **env, "PYTHONPATH": str(folder)}
        self._process = self._start()

    def _start(self) -> ChildProcess:
        return ChildProcess(self._argv, folder=self._folder, env=self._env)

    @property
    def id(self) -> str:
        """What a container would have as its id; its first 12 digits are in the worker's name."""
        return self._id

    @property
    def name(self) -> str:
        """A short name for messages."""
        return f"worker-{self._id[:12]}"

    @property
    def status(self) -> str:
        """Docker's words for it."""
        return "running" if self._process.running else "exited"

    def ready(self) -> bool:
        """Wait until the worker says that it is ready."""
        prompt = self.ready_prompt
        self._process.wait_for(lambda: prompt in self.logs(), f"{self.name} is ready", START_S)
        return True

    def logs(self) -> str:
        """All that it has written, over restarts too."""
        return self._process.log()

    def kill(self, signal: str | int = "SIGKILL") -> None:
        """Kill the worker with its children, or send another signal to it alone."""
        number = Signals[signal] if isinstance(signal, str) else Signals(signal)
        if number == Signals.SIGKILL:
            self._process.kill()
        else:
            self._process.signal(number)

    def reload(self) -> None:
        """Nothing is cached here."""

    def restart(self, timeout: float) -> None:
        """End the worker as an operator would, and start it again."""
        self._process.terminate(timeout)
        self._process = self._start()
        self.ready()

    def teardown(self) -> None:
        """End the worker."""
        self._process.kill()
