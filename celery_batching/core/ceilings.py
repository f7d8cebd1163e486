"""How many items fit into memory: learnt for each key from the runs that did not, forgotten slowly."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

__all__ = ["Ceilings"]

#: Batches of the full size that must fit before one more item is tried. After a try that did not
#: fit it takes twice as many, up to the second number.
PATIENCE, MOST_PATIENCE = 8, 1024


@dataclasses.dataclass(slots=True)
class _Ceiling:
    size: int
    fitted: int = 0
    patience: int = PATIENCE
    #: The size that had fitted often enough when a larger one was tried.
    proven: int = 0


class Ceilings:
    """The largest batch of each key that is thought to fit.

    Multiplicative decrease (the halves that the run itself went down to) and additive increase,
    as in TCP's congestion control (Chiu and Jain, 1989), with the step back to the proven size
    when the increase was what did not fit.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, _Ceiling] = {}

    def cap(self, key: Hashable, max_batch_size: int) -> int:
        """The most items for a batch of this key."""
        ceiling = self._by_key.get(key)
        return max_batch_size if ceiling is None else min(ceiling.size, max_batch_size)

    def did_not_fit(self, key: Hashable, size: int, fitted: int) -> int:
        """A batch of ``size`` ran out of memory, and in parts of ``fitted`` items it did not; the new cap."""
        ceiling = self._by_key.setdefault(key, _Ceiling(fitted))
        if ceiling.proven:  # one more was tried since
            ceiling.patience = min(2 * ceiling.patience, MOST_PATIENCE)
        ceiling.size = ceiling.proven if ceiling.proven == size - 1 else fitted
        ceiling.fitted = ceiling.proven = 0
        return ceiling.size

    def did_fit(self, key: Hashable, size: int, max_batch_size: int) -> None:
        """A batch of ``size`` had room; enough full ones allow one item more."""
        ceiling = self._by_key.get(key)
        if ceiling is None or size < ceiling.size:
            return
        ceiling.fitted += 1
        if ceiling.fitted < ceiling.patience:
            return
        if ceiling.size >= max_batch_size:
            del self._by_key[key]
        else:
            ceiling.proven, ceiling.fitted = ceiling.size, 0
            ceiling.size += 1
