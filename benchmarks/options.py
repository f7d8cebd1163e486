"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Sizes"]


@dataclass(frozen=True)
class Sizes:
    """How much one turn of one system measures.

    Attributes:
        items: a drain's backlog.
        gap_items: the backlog in front of the simulated model, for its idle gaps.
        gap_batches: the most items in a batch there.
        scale_items: the backlog of the scenario ``scale``.
        seconds: how long each load lasts.
        callers: numbers of concurrent callers in the closed loop.
        loads: shares of the capacity in the open loop.
    """

    items: int = 8_000
    gap_items: int = 2_000
    gap_batches: tuple[int, ...] = (16, 64)
    scale_items: int = 200_000
    seconds: float = 5.0
    callers: tuple[int, ...] = (1, 16, 64, 256)
    loads: tuple[float, ...] = (0.3, 0.7, 0.95)
