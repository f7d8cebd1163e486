"""core/outcomes: what ``run`` may return, and what becomes of anything else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from celery.exceptions import Ignore, Retry

from celery_batching import BatchOutputError, BatchSizeMismatch
from celery_batching.core.outcomes import Raised, Returned, align


def values(output: Any, size: int) -> list[Any]:
    return [outcome.value if isinstance(outcome, Returned) else outcome for outcome in align(output, size, "proj.f")]


def numbers(count: int) -> Iterator[int]:
    yield from range(count)


@pytest.mark.parametrize("output", [[0, 1, 2], (0, 1, 2), range(3), numbers(3), iter([0, 1, 2]), np.arange(3)])
def test_sequences_iterators_and_arrays_map_by_row(output: Any) -> None:
    """Lists, tuples, ranges, generators and arrays give one outcome per item, in order."""
    assert [0, 1, 2] == values(output, 3)


def test_a_matrix_is_split_along_its_first_axis() -> None:
    """Each item of a two-dimensional array gets its row."""
    rows = values(np.array([[1.0, 2.0], [3.0, 4.0]]), 2)

    assert [[1.0, 2.0], [3.0, 4.0]] == [row.tolist() for row in rows]


def test_a_tensor_is_moved_to_the_host_as_a_whole() -> None:
    """A torch tensor on any device, with or without a gradient, is split into rows on the CPU."""
    torch = pytest.importorskip("torch")
    output = torch.tensor([[1.0], [2.0]], requires_grad=True)

    rows = values(output, 2)

    assert [[1.0], [2.0]] == [row.tolist() for row in rows]
    assert [False, False] == [row.requires_grad for row in rows]


@pytest.mark.parametrize(
    ("output", "named"),
    [
        (None, "None"),
        ({"a": 1, "b": 2}, "dict"),
        ({1, 2}, "set"),
        (frozenset({1, 2}), "frozenset"),
        ("ab", "str"),
        (b"ab", "bytes"),
        (bytearray(b"ab"), "bytearray"),
        (42, "int"),
        (np.float64(3.0), "float64"),
        (np.array(3.0), "ndarray"),
        ({"a": 1, "b": 2}.values(), "dict_values"),
    ],
)
def test_another_type_is_refused_by_name(output: Any, named: str) -> None:
    """A dict, set, str, bytes, None or number fails the batch, naming what came and what was wanted."""
    with pytest.raises(BatchOutputError, match=r"proj\.f\.run\(\) returned .*2 items") as caught:
        align(output, 2, "proj.f")

    assert named in str(caught.value)


@pytest.mark.parametrize(("output", "got"), [([1], 1), ([], 0), ([1, 2, 3], 3), (np.zeros((5, 2)), 5), (numbers(9), 3)])
def test_a_wrong_count_names_both_numbers(output: Any, got: int) -> None:
    """Another number of results than items is an error with both numbers, and reads no endless iterator."""
    with pytest.raises(BatchSizeMismatch, match=f"got 2 items and returned {got} results") as caught:
        align(output, 2, "proj.f")

    assert (2, got) == (caught.value.expected, caught.value.got)


def test_the_mismatch_survives_pickling() -> None:
    """The error crosses from the pool process to the main process unchanged."""
    error = BatchSizeMismatch("proj.f", 2, 1)

    assert str(error) == str(pickle.loads(pickle.dumps(error)))


@pytest.mark.parametrize("entry", [ValueError("bad"), KeyError("k"), Retry(), Ignore(), SystemExit(1)])
def test_an_exception_entry_is_the_end_of_its_item_alone(entry: BaseException) -> None:
    """An exception in place of a result becomes that item's outcome; its neighbours keep theirs."""
    assert [Returned(1), Raised(entry), Returned(3)] == align([1, entry, 3], 3, "proj.f")


def test_what_a_generator_raises_comes_through() -> None:
    """An error inside a generator is an error of ``run``, not of the output."""

    def output() -> Iterator[int]:
        yield 1
        raise LookupError("second")

    with pytest.raises(LookupError, match="second"):
        align(output(), 2, "proj.f")
