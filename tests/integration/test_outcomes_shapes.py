"""What `run` may return: one result per item in any shape that has rows; anything else fails the whole batch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from celery import Task
from celery.result import AsyncResult

from celery_batching import BatchOutputError, BatchSizeMismatch
from tests.support.apps.outcomes import BAD, COUNTS, GOOD
from tests.support.worker_process import WorkerProcess

pytestmark = pytest.mark.any_celery

WorkerFixture = Callable[..., WorkerProcess]

ITEMS = (1, 2, 3, 4)
PICKLE = {"result_serializer": "pickle", "result_accept_content": ["json", "pickle"]}


@pytest.mark.parametrize("kind", GOOD)
def test_each_caller_gets_the_row_of_its_item(shared_worker: WorkerFixture, kind: str) -> None:
    """Lists, tuples, generators, arrays and tensors are mapped to the callers by row (case 15)."""
    if kind.startswith("torch") and not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")
    worker = shared_worker("outcomes")

    results = batch_of(worker.task("shape"), kind=kind)

    assert [[2 * x, x] for x in ITEMS] == [one.get(timeout=30) for one in results]


@pytest.mark.parametrize("kind", BAD)
def test_what_has_no_rows_fails_every_item_clearly(shared_worker: WorkerFixture, kind: str) -> None:
    """A dict, set, str, bytes, None or scalar fails all items with one error that names it; nothing is split."""
    worker = shared_worker("outcomes")

    errors = errors_of(batch_of(worker.task("shape"), kind=kind), BatchOutputError)

    assert 1 == len(set(map(str, errors)))
    assert f"outcomes.shape.run() returned {'a ' if 'axes' in kind else ''}{BAD[kind][1]}" in str(errors[0])
    assert "one result per item" in str(errors[0])
    assert "(4 items)" in str(errors[0])


@pytest.mark.parametrize("got", COUNTS)
def test_a_wrong_count_fails_every_item_with_both_numbers(shared_worker: WorkerFixture, got: int) -> None:
    """Too few or too many results fail all items with both numbers; nobody gets a neighbour's value (case 18)."""
    worker = shared_worker("outcomes")

    errors = errors_of(batch_of(worker.task("count"), number=got), BatchSizeMismatch)

    assert [(4, got)] * 4 == [(error.expected, error.got) for error in errors]
    assert f"got 4 items and returned {got} results" in str(errors[0])


def test_arrays_inside_become_plain_for_json(shared_worker: WorkerFixture) -> None:
    """With the json serializer arrays and their scalars become lists and numbers, at any depth."""
    worker = shared_worker("outcomes")

    values = [one.get(timeout=30) for one in batch_of(worker.task("arrays"))]

    assert [{"scores": [x, 2 * x], "best": [x, [x, True]]} for x in ITEMS] == values


def test_arrays_stay_arrays_for_pickle(shared_worker: WorkerFixture) -> None:
    """With a serializer that takes arrays the callers get the arrays themselves."""
    worker = shared_worker("outcomes", settings=PICKLE)

    values = [one.get(timeout=30) for one in batch_of(worker.task("arrays"))]

    for x, value in zip(ITEMS, values, strict=True):
        assert isinstance(value["scores"], np.ndarray)
        assert [x, 2 * x] == value["scores"].tolist()
        assert [np.float64, np.int64] == [type(value["best"][0]), type(value["best"][1][0])]


def batch_of(task: Task, **options: Any) -> list[AsyncResult]:
    """The results of four calls, which make one full batch."""
    return [task.delay(x, **options) for x in ITEMS]


def errors_of(results: list[AsyncResult], kind: type[Exception]) -> list[Any]:
    """The error of each call, which must be of this kind."""
    errors = [one.get(timeout=10, propagate=False) for one in results]
    assert ["FAILURE"] * len(results) == [one.state for one in results]
    assert [kind] * len(results) == [type(error) for error in errors]
    return errors
