"""The checker after every integration test: nothing waits, nothing is unacked, every result expires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from tests.support.sites import LiveSite
from tests.support.waiting import wait_until

#: Seconds for the last acks to arrive after the last result.
SETTLE_S = 20.0


def assert_nothing_left(sites: Iterable[LiveSite]) -> None:
    """Fail with what the test has left at its sites, and remove it there."""
    for live in sites:
        with purged_on_failure(live):
            wait_until(partial(is_clean, live), f"nothing is left at {live.site.queue}", SETTLE_S, saw=live.leftovers)


def is_clean(live: LiveSite) -> bool:
    """Whether nothing is left at a site."""
    return not live.leftovers()


@contextmanager
def purged_on_failure(live: LiveSite) -> Iterator[None]:
    """Remove what is left when the check fails, so that the next test is not blamed for it."""
    try:
        yield
    except BaseException:
        live.purge()
        raise
