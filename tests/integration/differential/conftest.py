"""What all modules of the differential tests need."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _results_end_before_their_apps() -> Iterator[None]:
    # The results of chords and chains are cycles; as garbage they unsubscribe, which needs their backend.
    yield
    gc.collect()
