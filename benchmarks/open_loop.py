"""The scenario ``open``: calls come by chance, whether or not earlier ones are answered."""

from __future__ import annotations

from .clients import call_concurrently
from .closed_loop import CAPACITY_CALLERS, call_in_closed_loop
from .model import SIMULATED
from .options import Sizes
from .place import Place
from .results import Turn, percentile
from .systems import System
from .worker import Worker, running_workers

__all__ = ["OFFERED", "measure_open_loop"]

#: Client processes, and threads in each: more calls at a time than a system under its capacity has.
PROCESSES, THREADS = 2, 64

#: The metric that is the load in calls per second.
OFFERED = "offered calls/s"


def measure_open_loop(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """The times of calls at several shares of what the system does in a closed loop, measured just before."""
    with running_workers(turn, system, place, SIMULATED) as workers:
        closed = call_in_closed_loop(system, place, workers, CAPACITY_CALLERS, PROCESSES, sizes.seconds)
        turn.add_wrong(closed.wrong, closed.errors)
        capacity = closed.answered / sizes.seconds
        for load in sizes.loads:
            _measure(turn, system, place, workers, load, capacity * load, sizes.seconds)


def _measure(
    turn: Turn, system: System, place: Place, workers: list[Worker], load: float, rate: float, seconds: float
) -> None:
    point = f"{load:g} of capacity"
    common = [f"--callers={THREADS}", f"--rate={rate / PROCESSES}"]
    loads = [[*common, f"--seed={turn.round * PROCESSES + one}"] for one in range(PROCESSES)]
    calls = call_concurrently(system, place, workers, loads, seconds)
    times = calls.times()
    turn.add_wrong(calls.wrong, calls.errors)
    turn.add(point, OFFERED, len(times) / seconds)
    turn.add(point, "p50 ms", percentile(times, 50) * 1000)
    turn.add(point, "p95 ms", percentile(times, 95) * 1000)
