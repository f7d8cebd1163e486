"""The bulk path and lean calls over TLS (rediss://), where what a socket has to read is not all that has come."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from celery_batching.client.result import BatchResult
from tests.support.child_process import free_ports
from tests.support.missing import skip_or_fail
from tests.support.redis_server import RedisServer, find_server
from tests.support.sites import LiveSite
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

#: Calls of each of so many threads.
THREADS, CALLS = 8, 40


def has_tls(executable: str) -> bool:
    """Whether a Redis was built with TLS; else it does not know the option."""
    command = [executable, "--tls-port", "0", "--port", "0", "--no-such-option", "x"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return "tls-port" not in said.stdout + said.stderr


@pytest.fixture
def secret_site(
    start_redis: Callable[..., RedisServer], open_site: Callable[..., LiveSite], tmp_path: Path
) -> Iterator[LiveSite]:
    """A site whose broker and backend are reached over TLS; the tests themselves look in without."""
    if not has_tls(find_server()):
        skip_or_fail("this Redis was built without TLS")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    paths = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    certificate.private_key_pem.write_to_path(paths["key"])
    certificate.cert_chain_pems[0].write_to_path(paths["cert"])
    (port,) = free_ports(1)
    options = ["--tls-port", str(port), "--tls-auth-clients", "no"]
    options += ["--tls-ca-cert-file", paths["ca"], "--tls-cert-file", paths["cert"], "--tls-key-file", paths["key"]]
    live = open_site(redis=start_redis(*map(str, options)))

    def over_tls(url: str) -> str:
        return f"rediss://127.0.0.1:{port}/{url.rpartition('/')[2]}?ssl_cert_reqs=required&ssl_ca_certs={paths['ca']}"

    site = dataclasses.replace(
        live.site, broker_url=over_tls(live.site.broker_url), backend_url=over_tls(live.site.backend_url)
    )
    secret = LiveSite(site, live.broker, live.backend)
    yield secret
    secret.close_client()


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_calls_over_tls(secret_site: LiveSite, start_worker: WorkerFixture, pool: str) -> None:
    """Many callers and a list of calls are answered, by way of the lease and of one subscription."""
    worker = start_worker("lean", site=secret_site, pool=pool)
    double = worker.task("double")

    def call(first: int) -> list[int]:
        return [double.delay(x).get(timeout=40) for x in range(first, first + CALLS)]

    with ThreadPoolExecutor(THREADS) as threads:
        answers = [x for some in threads.map(call, range(0, THREADS * CALLS, CALLS)) for x in some]
    assert [2 * x for x in range(THREADS * CALLS)] == answers

    results = double.delay_many(range(200))
    assert [2 * x for x in range(200)] == results.get(timeout=40)
    assert all(isinstance(one, BatchResult) for one in results)
    held = secret_site.broker.client.zcard("celery_batching.unacked.workers")
    assert 1 == held, "the worker has a lease"
