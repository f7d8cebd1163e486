"""Whether all that the broker has is read: what came together is decided of together, and where the model runs in
the event loop's thread, nothing was read meanwhile.
"""

from __future__ import annotations

__all__ = ["QUIET_S", "Quiet"]

#: Seconds without a message that make one quiet moment of the event loop.
QUIET_S = 0.002

#: Quiet moments after which the backlog is taken for read. The loop fires its timers
#: before it looks at its sockets, so the first may pass without a look.
QUIET_MOMENTS = 2


class Quiet:
    """Counts the quiet moments since the model has run; where it runs elsewhere, there is nothing to count.

    Attributes:
        in_burst: whether messages that came together are being delivered.
    """

    def __init__(self) -> None:
        self._wanted = 0
        self.in_burst = False

    @property
    def reached(self) -> bool:
        """Whether nothing more is to be read first."""
        return not self._wanted and not self.in_burst

    def begin_burst(self, *, last: bool) -> None:
        """Messages that came together are delivered from now on; ``last``: the broker says that it has no more."""
        self.in_burst = True
        if last:
            self._wanted = 0  # until the model runs

    def end_burst(self) -> None:
        """All of them are delivered."""
        self.in_burst = False

    def lose(self) -> None:
        """The model has run, and messages may have come meanwhile."""
        self._wanted = QUIET_MOMENTS

    def disturb(self) -> None:
        """A message has come."""
        if self._wanted:
            self._wanted = QUIET_MOMENTS

    def pass_moment(self) -> None:
        """No message has come for a moment."""
        self._wanted = max(self._wanted - 1, 0)
