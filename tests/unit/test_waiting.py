"""Waiting ends with a value or with a reason."""

from __future__ import annotations

import pytest

from tests.support.waiting import NotInTimeError, wait_until
from tests.support.worker_process import BATCH_LINE, BatchLine, parse_batch


def test_the_first_true_value_is_returned() -> None:
    """Waiting gives back what the predicate found."""
    values = iter([0, None, "found"])

    assert "found" == wait_until(lambda: next(values), "a value")


def test_a_wait_in_vain_says_what_it_saw() -> None:
    """Waiting that ends in vain names what was wanted and what was there."""
    with pytest.raises(NotInTimeError, match=r"three items: not within 0 s; last seen: \[1\]"):
        wait_until(lambda: False, "three items", timeout=0, saw=lambda: [1])


def test_a_batch_line_is_read() -> None:
    """The line that a worker logs for a batch is read into its values."""
    line = (
        "[2030-01-01 00:00:00,000: INFO/MainProcess] Batch proj.embed size=8 reason=wait"
        " waited=0.010s run=0.012s succeeded=7 failed=1 retried=0\n"
    )
    found = BATCH_LINE.search(line)

    assert found
    assert BatchLine("proj.embed", 8, "wait", 0.010, 0.012, 7, 1, 0) == parse_batch(found.groupdict())
