"""The checker after every integration test: nothing waits, nothing is unacked, every result expires."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.sites import LiveSite
from tests.support.waiting import wait_until

#: Seconds for the last acks to arrive after the last result.
SETTLE_S = 5.0


def assert_nothing_left(sites: Iterable[LiveSite]) -> None:
    """Fail with what the test has left at its sites, and remove it there."""
    for live in sites:
        try:
            wait_until(
                lambda live=live: not live.leftovers(),
                f"nothing is left at {live.site.queue}",
                SETTLE_S,
                saw=live.leftovers,
            )
        except BaseException:
            live.purge()
            raise
