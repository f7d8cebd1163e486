"""pool/plain: arrays and their scalars become what a JSON encoder takes, at any depth; the rest stays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_batching.pool.plain import to_plain

trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children) | st.tuples(children, children),
)


@given(trees)
def test_plain_values_stay_as_they_are(value: Any) -> None:
    """A value without arrays comes back equal, with the same types of containers."""
    plain = to_plain(value)

    assert value == plain
    assert type(value) is type(plain)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.arange(3), [0, 1, 2]),
        (np.eye(2), [[1.0, 0.0], [0.0, 1.0]]),
        ([np.arange(2), 1, "a"], [[0, 1], 1, "a"]),
        ({"scores": np.array([0.5]), "best": np.int32(0)}, {"scores": [0.5], "best": 0}),
        ((np.float64(2.0), [np.float64(3.0)]), (2.0, [3.0])),
        ({np.int64(7): "key"}, {7: "key"}),
    ],
)
def test_arrays_become_lists_and_scalars_become_numbers(value: Any, expected: Any) -> None:
    """Numpy values are found at any depth, and the result can be encoded as JSON."""
    plain = to_plain(value)

    assert expected == plain
    assert json.dumps(plain)


def test_tensors_become_lists() -> None:
    """Torch tensors, bfloat16 and scalars among them, become lists and numbers."""
    torch = pytest.importorskip("torch")
    value = {"row": torch.ones(2, dtype=torch.bfloat16), "scalar": torch.tensor(3)}

    assert {"row": [1.0, 1.0], "scalar": 3} == to_plain(value)
