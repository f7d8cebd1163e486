"""What a message shows of its arguments: what Celery's saferepr makes of them, also where that is not asked."""

from __future__ import annotations

from typing import Any

from celery.utils.saferepr import saferepr
from hypothesis import given
from hypothesis import strategies as st

from celery_batching.client._celery.showing import shown

TEXTS = st.one_of(st.text(max_size=120), st.text("aé'\"\\ \n\ud800", max_size=20))
VALUES = st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), TEXTS, st.binary(), st.lists(st.integers()))


@given(st.one_of(st.lists(VALUES, max_size=12).map(tuple), st.lists(VALUES, max_size=3)), st.integers(1, 1100))
def test_it_is_what_saferepr_shows(value: Any, maxlen: int) -> None:
    """For any arguments, and at any length at which it is cut."""
    assert saferepr(value, maxlen) == shown(value, maxlen)


@given(st.text(max_size=120))
def test_any_text(text: str) -> None:
    """Quotes, escapes and what cannot be printed."""
    assert saferepr((text,), 1024) == shown((text,), 1024)
    assert saferepr((text, 1, 2.5, None, True), 1024) == shown((text, 1, 2.5, None, True), 1024)
