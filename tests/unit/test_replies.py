"""The message in which a worker tells a process its results."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_batching.transport.replies import MOST_BYTES, is_reply_channel, new_reply_channel, packed, unpacked

STORED = st.one_of(st.binary(min_size=1, max_size=50), st.text(min_size=1, max_size=50))


@given(st.lists(st.tuples(st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()), STORED)))
def test_what_is_packed_comes_out_again(results: list[tuple[str, bytes | str]]) -> None:
    """Any ids, any bytes, in order."""
    wanted = [(name, stored.encode() if isinstance(stored, str) else stored) for name, stored in results]
    assert wanted == list(unpacked(packed(results)))


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_or_read(message: bytes) -> None:
    """Never another error than ValueError, and never an endless loop."""
    with contextlib.suppress(ValueError):
        list(unpacked(message))


def test_a_large_result_is_only_announced() -> None:
    """Its place says that it must be read where it is stored."""
    assert [("large", b""), ("small", b"x")] == list(
        unpacked(packed([("large", b"x" * (MOST_BYTES + 1)), ("small", "x")]))
    )


def test_a_message_that_is_cut_short_is_refused() -> None:
    """Nothing is made up for the missing end."""
    with pytest.raises(ValueError, match="cut short"):
        list(unpacked(packed([("id", b"stored")])[:-1]))


def test_a_channel_is_known_by_its_name() -> None:
    """Celery's own reply_to, a bare id, asks for nothing."""
    assert is_reply_channel(new_reply_channel())
    assert new_reply_channel() != new_reply_channel()
    assert not is_reply_channel("0f5e2f9c-8d1c-3ad3-9ab4-1c1b6c9f8e75")
    assert not is_reply_channel("")
    assert not is_reply_channel(None)
