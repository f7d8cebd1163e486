"""A Redis server for the tests, and databases of it that one user has for himself."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit, urlunsplit

import redis

from example_project.local_redis import URL_VARIABLE, RedisNotFoundError, find_executable
from tests.support.child_process import ChildProcess, free_ports
from tests.support.missing import ServerMissingError

#: The key that marks a database as taken; everything else in there belongs to its user.
CLAIM = "tests:claimed"

#: Takes a database only when nothing at all is in it, so that nobody's data is ever flushed.
CLAIM_IF_EMPTY = "return redis.call('DBSIZE') == 0 and redis.call('SET', KEYS[1], ARGV[1])"


class RedisServer:
    """The server behind CELERY_BATCHING_REDIS_URL, or else a child on a private port of loopback."""

    def __init__(self, folder: Path, *options: str, external: str | None = None) -> None:
        """Start a server in `folder` with more `options`, or use the `external` one at that URL."""
        self._folder, self._options = folder, options
        self._process: ChildProcess | None = None
        if external:
            self.address = urlunsplit(urlsplit(external)._replace(path=""))
            return
        self._executable = find_server()
        self._port = free_ports(1)[0]
        self.address = f"redis://127.0.0.1:{self._port}"
        self.start()

    @classmethod
    def for_tests(cls, folder: Path) -> RedisServer:
        """Use the server that the environment names, or start one."""
        return cls(folder, external=os.environ.get(URL_VARIABLE))

    def start(self) -> None:
        """Start the child (again, with what it kept) and wait until it is the one that answers."""
        argv = [self._executable, "--bind", "127.0.0.1", "--port", str(self._port)]
        argv += ["--save", "", "--dir", str(self._folder), *self._options]
        self._process = process = ChildProcess(argv, folder=self._folder)
        process.wait_for(lambda: process.listens_on(self._port), "Redis serves its port")
        process.wait_for(self._has_loaded, "Redis has read what it kept")

    def stop(self) -> None:
        """End the child at once; with `--appendonly yes` its data is there after the next start."""
        if self._process:
            self._process.kill()

    def _has_loaded(self) -> bool:
        with self.client(0) as client:
            try:
                return bool(client.ping())
            except redis.BusyLoadingError:
                return False

    def url(self, db: int) -> str:
        """The URL of a database."""
        return f"{self.address}/{db}"

    def client(self, db: int) -> redis.Redis:
        """A new client of a database; close it."""
        return redis.Redis.from_url(self.url(db), decode_responses=True)

    def claim_db(self) -> int:
        """Take an empty database, which nobody else will get until it is released."""
        with self.client(0) as client:
            count = int(client.config_get("databases")["databases"])
        for db in range(count):
            with self.client(db) as client:
                if client.eval(CLAIM_IF_EMPTY, 1, CLAIM, os.getpid()):
                    return db
        message = f"none of the {count} databases of {self.address} is empty"
        raise RuntimeError(message)

    def release_db(self, db: int) -> None:
        """Empty a database that was claimed and give it back."""
        with self.client(db) as client:
            client.flushdb()

    def drop_connections(self, db: int, ports: Collection[int]) -> None:
        """Cut the connections from these client ports to a database, as a broken network would."""
        with self.client(0) as client:
            for one in client.client_list():
                if one["db"] == str(db) and int(one["addr"].rpartition(":")[2]) in ports:
                    client.client_kill_filter(_id=one["id"])

    def __enter__(self) -> RedisServer:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Give the running server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the child."""
        self.stop()


def find_server() -> str:
    """The path of a Redis server, found as the example project finds it."""
    try:
        return str(find_executable())
    except RedisNotFoundError as error:
        raise ServerMissingError(str(error)) from error
