"""Results that carry their call along: `result_extended` for the items of a batch (case 67)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.busy import busy, wait_for_waiting
from tests.support.messages import message_for
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

WorkerFixture = Callable[..., WorkerProcess]

EXTENDED = {"result_extended": True}


@pytest.mark.parametrize(("broker", "backend"), [("redis", "redis"), ("redis", "sqlite")])
def test_an_extended_result_names_its_call(shared_worker: WorkerFixture, broker: str, backend: str) -> None:
    """Each item's result has its own name, arguments, worker, queue and count of retries (case 67)."""
    worker = shared_worker("control", pool="threads", broker=broker, backend=backend, settings=EXTENDED)
    double, flaky = worker.task("double"), worker.task("flaky")

    with busy(worker, double):
        items = [double.delay(1), double.apply_async(kwargs={"xs": 2}), flaky.delay(3, 1)]
        wait_for_waiting(worker, 3)

    assert [2, 4, 6] == [item.get(timeout=40) for item in items]
    assert [[1], [], [3, 1]] == [list(item.args) for item in items]
    assert [{}, {"xs": 2}, {}] == [item.kwargs for item in items]
    assert ["control.double", "control.double", "control.flaky"] == [item.name for item in items]
    assert [0, 0, 1] == [item.retries for item in items]
    assert {worker.node} == {item.worker for item in items}
    assert {worker.live.site.queue} == {item.queue for item in items}


def test_odd_arguments_spoil_no_neighbour(shared_worker: WorkerFixture) -> None:
    """One item whose arguments are hard to store leaves the results of its batch whole (case 67)."""
    worker = shared_worker("control", pool="threads", settings=EXTENDED)
    double = worker.task("double")

    with busy(worker, double):
        good = [double.delay(1), double.delay(2)]
        body = '[["\\ud800\\u0000"], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
        odd = message_for(double, 3).but(body=body).with_headers(argsrepr=5, kwargsrepr=["x"]).publish(worker.app)
        wait_for_waiting(worker, 3)

    assert [2, 4] == [item.get(timeout=30) for item in good]
    assert [[1], [2]] == [list(item.args) for item in good]
    wait_until(odd.ready, "the odd one ends", saw=lambda: odd.state)
