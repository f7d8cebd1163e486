"""Wiring only: markers by folder, the servers of the run, and the workers of each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer
from tests.support.servers import Servers
from tests.support.sites import LiveSite
from tests.support.worker_process import WorkerProcess
from tests.support.workers import SharedWorkers, Workers

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its level, which is the name of its folder."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(item.path.relative_to(HERE).parts[0])


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Redis and RabbitMQ, started when first used; each xdist process has its own."""
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def shared_workers(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedWorkers]:
    """The workers that several tests use."""
    shared = SharedWorkers(servers, tmp_path_factory.mktemp)
    yield shared
    shared.close()


@pytest.fixture
def workers(
    servers: Servers, shared_workers: SharedWorkers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workers]:
    """All workers and sites that one test uses; checks afterwards that nothing is left there."""
    workers = Workers(servers, shared_workers, tmp_path_factory.mktemp)
    yield workers
    workers.close()


@pytest.fixture
def shared_worker(workers: Workers) -> Callable[..., WorkerProcess]:
    """`shared_worker("plain", pool="threads", broker="rabbitmq")`: may be one that another test used."""
    return workers.shared


@pytest.fixture
def start_worker(workers: Workers) -> Callable[..., WorkerProcess]:
    """`start_worker("plain", extra=["-E"])`: a fresh worker, to signal, to kill, or to set up oddly."""
    return workers.start


@pytest.fixture
def start_redis(workers: Workers) -> Callable[..., RedisServer]:
    """`start_redis("--appendonly", "yes")`: a server to stop and start, for `open_site(redis=...)`."""
    return workers.start_redis


@pytest.fixture
def open_site(workers: Workers) -> Callable[..., LiveSite]:
    """`open_site(broker="rabbitmq")`: a client's side alone; workers join with `site=`."""
    return workers.open_site
