"""The scenarios ``drain`` and ``gap``: a backlog, without and with a model that takes its time."""

from __future__ import annotations

from itertools import pairwise

from .backlog import drain
from .model import NOTHING, SIMULATED
from .options import Sizes
from .place import Place
from .results import Turn, median
from .systems import System
from .worker import running_workers

__all__ = ["measure_drain", "measure_gap"]


def measure_drain(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """A backlog with a model that does nothing: the worker's own speed, and its CPU."""
    point = f"{sizes.items:,} queued"
    with running_workers(turn, system, place, NOTHING) as workers:
        drained = drain(turn, system, place, workers, sizes.items)
    turn.add(point, "items/s", sizes.items / (drained.end - drained.begin))
    turn.add(point, "worker CPU, s per 1,000 items", drained.cpu_s / sizes.items * 1000)


def measure_gap(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """A backlog with the simulated model: how long it stands idle between two runs, though items wait.

    With large batches the model asks for more items a second than two cores can bring.
    """
    for batch_size in sizes.gap_batches:
        point = f"{sizes.gap_items:,} queued, batches of {batch_size}"
        with running_workers(turn, system, place, SIMULATED, batch_size=batch_size) as workers:
            drained = drain(turn, system, place, workers, sizes.gap_items)
            runs = workers[0].runs(drained.begin, drained.end)
        gaps = [later.begin - earlier.end for earlier, later in pairwise(runs)]
        turn.add(point, "items/s", sizes.gap_items / (drained.end - drained.begin))
        turn.add(point, "items per run of the model", sum(run.items for run in runs) / max(1, len(runs)))
        turn.add(point, "model idle between runs, median ms", median(gaps) * 1000)
