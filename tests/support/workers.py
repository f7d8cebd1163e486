"""Gives tests their workers, a fresh one or one that others use too, and checks what each test leaves."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.leaks import assert_nothing_left
from tests.support.redis_server import RedisServer
from tests.support.servers import Servers
from tests.support.sites import LiveSite, open_site
from tests.support.worker_process import WorkerOptions, WorkerProcess, worker_options

#: Shared workers alive at a time; the least recently used one makes room.
MAX_SHARED = 6

#: Characters of each worker's log that a failed test shows.
SHOWN_LOG = 20_000

NewFolder = Callable[[str], Path]


class SharedWorkers:
    """Workers that outlive a test, so that the next test that wants the same need not start one."""

    def __init__(self, servers: Servers, new_folder: NewFolder) -> None:
        """Start with none."""
        self._servers, self._new_folder = servers, new_folder
        self._alive: OrderedDict[tuple[object, ...], WorkerProcess] = OrderedDict()

    def get(self, options: WorkerOptions, **place: Any) -> WorkerProcess:
        """The worker with these options at such a place; a new one if the last was ended."""
        key = (options, json.dumps(place, sort_keys=True))
        worker = self._alive.pop(key, None)
        if worker and not worker.running:
            end(worker)
            worker = None
        if worker is None:
            worker = self._start(options, **place)
        self._alive[key] = worker
        return worker

    def close(self) -> None:
        """End all of them."""
        while self._alive:
            end(self._alive.popitem()[1])

    def _start(self, options: WorkerOptions, **place: Any) -> WorkerProcess:
        while len(self._alive) >= MAX_SHARED:
            end(self._alive.popitem(last=False)[1])
        folder = self._new_folder("worker")
        worker = WorkerProcess(open_site(self._servers, folder, **place), options, folder)
        try:
            worker.wait_ready()
        except BaseException:
            end(worker)
            raise
        return worker


class Workers:
    """The workers and sites of one test; at its end nothing may be left at any of them.

    Then its own workers are killed, for speed; a test of their shutdown calls `terminate`.
    """

    def __init__(self, servers: Servers, shared: SharedWorkers, new_folder: NewFolder) -> None:
        """Start with none."""
        self._servers, self._shared, self._new_folder = servers, shared, new_folder
        self._own = ExitStack()
        self._sites: list[LiveSite] = []
        self._workers: list[WorkerProcess] = []

    def start_redis(self, *options: str) -> RedisServer:
        """A Redis server for this test alone, to stop and start; `open_site(redis=...)` uses it."""
        return self._own.enter_context(RedisServer(self._new_folder("redis"), *options))

    def open_site(self, **place: Any) -> LiveSite:
        """A site without a worker as yet: `broker`, `backend` and `settings` as in `start`."""
        live = open_site(self._servers, self._new_folder("site"), **place)
        self._own.callback(live.close)
        self._sites.append(live)
        return live

    def start(
        self,
        module: str,
        *,
        site: LiveSite | None = None,
        broker: str = "redis",
        backend: str = "redis",
        settings: dict[str, Any] | None = None,
        wait_ready: bool = True,
        **options: Any,
    ) -> WorkerProcess:
        """A worker for this test alone, at a new site or one more at an open `site`."""
        live = site or self.open_site(broker=broker, backend=backend, settings=settings)
        started = worker_options(module, **options)
        worker = WorkerProcess(live, started, self._new_folder("worker"))
        self._own.callback(worker.kill)
        self._workers.append(worker)
        if wait_ready:
            worker.wait_ready()
        return worker

    def shared(
        self,
        module: str,
        *,
        broker: str = "redis",
        backend: str = "redis",
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> WorkerProcess:
        """A worker like that of other tests; leave it alive, idle and as it was."""
        place = {"broker": broker, "backend": backend, "settings": settings}
        worker = self._shared.get(worker_options(module, **options), **place)
        self._sites.append(worker.live)
        self._workers.append(worker)
        worker.begin_test()
        return worker

    def close(self) -> None:
        """Let everything come to its end, check that nothing is left, and end the test's own."""
        with self._own:
            for live in self._sites:
                live.journal.reset()
            try:
                assert_nothing_left(self._sites)
            finally:
                self._show_logs()

    def _show_logs(self) -> None:
        # pytest shows this only with a test that failed.
        for worker in self._workers:
            print(f"--- {worker.node}: {worker.options}\n{worker.log()[-SHOWN_LOG:]}")  # noqa: T201


def end(worker: WorkerProcess) -> None:
    """End a shared worker, at once since it is idle, and close its site."""
    worker.kill()
    worker.live.close()
