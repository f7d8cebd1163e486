"""Batch tasks as parts of chains, links, groups and chords: what Celery promises for each call holds for each item."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import chain, chord, group
from celery.exceptions import ChordError

from tests.integration.test_delivered_again import AGAIN
from tests.support.busy import busy, later_runs
from tests.support.messages import sent_messages
from tests.support.waiting import wait_until
from tests.support.worker_process import WorkerProcess

#: Celery's own call, where it starts a chord in the client.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")

WorkerFixture = Callable[..., WorkerProcess]

PLACES = [("prefork", "redis"), ("threads", "rabbitmq"), ("solo", "redis")]
POOLS = ["prefork", "threads", "solo"]


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_chain_goes_on_behind_each_item(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A chain through a batch task reaches its end once per item, with that item as the parent (case 32)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double, note = worker.task("double"), worker.task("note")

    ends = [chain(double.s(x), note.s()).delay() for x in (1, 2, 3)]

    assert [2, 4, 6] == [end.get(timeout=30) for end in ends]
    notes = {entry["value"]: (entry["parent"], entry["root"]) for entry in worker.journal.wait_for("note", 3)}
    assert {2 * x: (end.parent.id, end.parent.id) for x, end in zip((1, 2, 3), ends, strict=True)} == notes
    assert 3 == len(worker.journal.entries("note"))


@pytest.mark.parametrize("pool", POOLS)
def test_a_chain_of_batch_tasks_ends(shared_worker: WorkerFixture, pool: str) -> None:
    """A batch task may follow a batch task, and a chain may end with one (case 32)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")

    assert [8, 16] == [chain(double.s(x), double.s(), double.s()).delay().get(timeout=30) for x in (1, 2)]


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_links_fire_once_per_item(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """In one batch each success fires its `link` and each failure its `link_error`, once and alone (case 32)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double, note, note_error = worker.task("double"), worker.task("note"), worker.task("note_error")

    with worker.journal.closed_gate():
        items = [double.apply_async((x,), link=note.s(), link_error=note_error.s()) for x in (1, -1, 2, -2)]

    assert [2, 4] == [items[i].get(timeout=30) for i in (0, 2)]
    for i, x in ((1, -1), (3, -2)):
        with pytest.raises(ValueError, match=f"{x} is below zero"):
            items[i].get(timeout=30)
    notes = {entry["parent"]: entry["value"] for entry in worker.journal.wait_for("note", 2)}
    errors = {entry["id"]: entry["error"] for entry in worker.journal.wait_for("error", 2)}
    assert {items[0].id: 2, items[2].id: 4} == notes
    assert {items[1].id, items[3].id} == set(errors)
    assert "-1 is below zero" in errors[items[1].id]
    assert (2, 2) == (len(worker.journal.entries("note")), len(worker.journal.entries("error")))


@pytest.mark.parametrize("pool", POOLS)
def test_a_group_gives_every_value_in_order(shared_worker: WorkerFixture, pool: str) -> None:
    """A group of batch items gives one value per member, in the order of the members (case 33)."""
    worker = shared_worker("control", pool=pool)
    double = worker.task("double")

    assert [2 * x for x in range(10)] == group(double.s(x) for x in range(10)).delay().get(timeout=30)


@pytest.mark.parametrize(("pool", "broker"), PLACES)
def test_a_chord_reaches_its_body_once(shared_worker: WorkerFixture, pool: str, broker: str) -> None:
    """A chord of eight items in batches of four calls its body once, with eight values (case 33)."""
    worker = shared_worker("control", pool=pool, broker=broker)
    double, collect = worker.task("double"), worker.task("collect")

    with worker.journal.closed_gate():
        body = chord([double.s(x) for x in range(8)], collect.s()).delay()

    assert [2 * x for x in range(8)] == body.get(timeout=30)
    assert 1 == len(worker.journal.entries("body"))


@pytest.mark.parametrize("pool", POOLS)
def test_a_failing_member_fails_the_chord(shared_worker: WorkerFixture, pool: str) -> None:
    """One failing member gives ChordError that names it, not a hang; the body does not run (case 33)."""
    worker = shared_worker("control", pool=pool)
    double, collect = worker.task("double"), worker.task("collect")

    body = chord([double.s(x) for x in (1, 2, -3, 4)], collect.s()).delay()

    wait_until(body.ready, "the body fails", saw=lambda: body.state)
    assert "FAILURE" == body.state
    assert isinstance(body.result, ChordError)
    assert "-3 is below zero" in str(body.result)
    assert [] == worker.journal.entries("body")


@pytest.mark.parametrize("pool", POOLS)
def test_a_batch_task_may_be_the_body(shared_worker: WorkerFixture, pool: str) -> None:
    """The body of a chord may be an item of a batch: it gets the values as its one argument (case 33)."""
    worker = shared_worker("control", pool=pool)
    double_alone, echo = worker.task("double_alone"), worker.task("echo")

    bodies = [chord([double_alone.s(x) for x in (n, n + 1)], echo.s()).delay() for n in (1, 5)]

    assert [[2, 4], [10, 12]] == [body.get(timeout=30) for body in bodies]


@pytest.mark.parametrize("together", [True, False])
def test_a_member_delivered_twice_counts_once(shared_worker: WorkerFixture, together: bool) -> None:
    """A chord with a member that is delivered twice, at once or later, calls its body once (case 34)."""
    worker = shared_worker("control", pool="threads")
    double, collect = worker.task("double"), worker.task("collect")

    with busy(worker, double) as running, sent_messages(double) as sent:
        body = chord([double.s(x) for x in (1, 2, 3)], collect.s()).delay()
        twice = sent[1]
        if together:
            twice.publish(worker.app)
            worker.wait_for(lambda: AGAIN in worker.log(), "it has come twice")

    assert [2, 4, 6] == body.get(timeout=30)
    assert 0 == running.get(timeout=30)
    if together:
        assert [[1, 2, 3]] == later_runs(worker)
    else:
        twice.publish(worker.app)
    assert 14 == double.delay(7).get(timeout=30)  # whoever came before it is settled
    assert [[2, 4, 6]] == [entry["values"] for entry in worker.journal.entries("body")]
