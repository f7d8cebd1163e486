"""Whether all that the broker has is read, before a batch that is not full leaves."""

from __future__ import annotations

from celery_batching.consumer.quiet import QUIET_MOMENTS, Quiet


def test_where_no_model_has_run_there_is_nothing_to_wait_for() -> None:
    """As on pools whose model runs elsewhere."""
    quiet = Quiet()
    quiet.disturb()
    assert quiet.reached


def test_after_a_run_moments_are_counted_from_the_last_message() -> None:
    """Where the broker does not say that it has no more."""
    quiet = Quiet()
    quiet.lose()
    for _ in range(QUIET_MOMENTS - 1):
        quiet.pass_moment()
        assert not quiet.reached
    quiet.disturb()
    for _ in range(QUIET_MOMENTS):
        assert not quiet.reached
        quiet.pass_moment()
    assert quiet.reached


def test_the_brokers_word_is_enough() -> None:
    """At the end of what it sent, and not before."""
    quiet = Quiet()
    quiet.lose()
    quiet.begin_burst(last=True)
    quiet.disturb()
    assert not quiet.reached
    quiet.end_burst()
    assert quiet.reached


def test_it_has_more() -> None:
    """What it sent was not all."""
    quiet = Quiet()
    quiet.lose()
    quiet.begin_burst(last=False)
    quiet.end_burst()
    assert not quiet.reached


def test_its_word_is_old_when_the_model_has_run_since() -> None:
    """A batch that became full ran in the midst of it."""
    quiet = Quiet()
    quiet.begin_burst(last=True)
    quiet.lose()
    quiet.end_burst()
    assert not quiet.reached
