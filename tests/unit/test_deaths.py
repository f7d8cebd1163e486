"""core/deaths: a worker whose processes die without end gives up, and says why."""

from __future__ import annotations

from celery_batching.core.deaths import MOST_IN_SETUP, Deaths


def test_three_deaths_in_setup_are_enough() -> None:
    """However long a setup takes, three in a row that end the process end the worker."""
    deaths = Deaths(most_in_a_minute=60)
    reasons = [deaths.died(1000.0 * number, "signal 11 (SIGSEGV)", in_setup=True) for number in range(MOST_IN_SETUP)]

    assert [None, None] == reasons[:2]
    assert "3 pool processes in a row died during setup(), the last one by signal 11 (SIGSEGV)" == reasons[2]


def test_a_process_that_comes_up_clears_the_count() -> None:
    """Deaths in setup must follow one another."""
    deaths = Deaths(most_in_a_minute=60)
    for number in range(20):
        assert None is deaths.died(1000.0 * number, "signal 9 (SIGKILL)", in_setup=True)
        deaths.came_up()


def test_deaths_in_a_minute_are_bounded() -> None:
    """The most that are allowed within 60 s may die, one more may not; older ones do not count."""
    deaths = Deaths(most_in_a_minute=3)

    assert [None] * 3 == [deaths.died(at, "exitcode 1", in_setup=False) for at in (0.0, 1.0, 2.0)]
    assert None is deaths.died(60.5, "exitcode 1", in_setup=False)
    reason = deaths.died(60.6, "exitcode 1", in_setup=False)
    assert reason is not None
    assert "4 pool processes died within 60 s" in reason
    assert "batching_max_restarts_per_minute is 3" in reason
