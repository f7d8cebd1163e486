"""Puts processes behind pytest-celery's `celery_setup`: its three leaf fixtures, and one broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest
from pytest_celery import (
    CeleryBackendCluster,
    CeleryBrokerCluster,
    RedisTestBackend,
    RedisTestBroker,
)

from tests.acceptance.process_nodes import RedisNode, WorkerNode
from tests.support.servers import Servers
from tests.support.sites import RedisDb


@pytest.fixture
def default_redis_broker(servers: Servers) -> Iterator[RedisNode]:
    """An empty database as the broker."""
    db = RedisDb(servers.redis)
    yield RedisNode(db)
    db.close()


@pytest.fixture
def default_redis_backend(servers: Servers) -> Iterator[RedisNode]:
    """Another empty database as the result backend."""
    db = RedisDb(servers.redis)
    yield RedisNode(db)
    db.close()


@pytest.fixture
def default_worker_container(
    default_worker_command: Sequence[str],
    default_worker_env: Mapping[str, str],
    default_worker_initial_content: Mapping[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WorkerNode]:
    """The worker, ready."""
    folder = tmp_path_factory.mktemp("node")
    node = WorkerNode(default_worker_command, default_worker_env, default_worker_initial_content, folder)
    try:
        node.ready()
        yield node
    finally:
        node.teardown()


# pytest-celery runs each test on all its brokers and backends, which it keeps in a
# set: the order changes from process to process, which pytest-xdist does not accept.


@pytest.fixture
def celery_broker_cluster(celery_redis_broker: RedisTestBroker) -> CeleryBrokerCluster:
    """Redis alone; RabbitMQ has its tests on another level."""
    return CeleryBrokerCluster(celery_redis_broker)


@pytest.fixture
def celery_backend_cluster(celery_redis_backend: RedisTestBackend) -> CeleryBackendCluster:
    """Redis alone."""
    return CeleryBackendCluster(celery_redis_backend)
