"""The scenario ``closed``: callers that each wait for the answer before they make the next call."""

from __future__ import annotations

from collections.abc import Callable

from .clients import Calls, call_concurrently
from .model import SIMULATED
from .options import Sizes
from .place import Place
from .results import Turn, percentile
from .systems import System
from .worker import Worker, running_workers

__all__ = ["CAPACITY_CALLERS", "RATE", "call_in_closed_loop", "measure_closed_loop"]

#: The callers whose rate is taken for a system's capacity.
CAPACITY_CALLERS = 64

#: The metric that is the rate.
RATE = "calls/s"


def measure_closed_loop(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """Rates and times for each number of callers, and those of one client process alone."""
    with running_workers(turn, system, place, SIMULATED) as workers:
        for number in sizes.callers:
            processes = 1 if number == 1 else 2
            calls = call_in_closed_loop(system, place, workers, number, processes, sizes.seconds)
            point = f"{number} caller{'s' * (number > 1)}"
            _report(turn, point, calls, sizes.seconds)
            runs = workers[0].runs(calls.begin, calls.end)
            turn.add(point, "items per run of the model", sum(run.items for run in runs) / max(1, len(runs)))
        calls = call_in_closed_loop(system, place, workers, CAPACITY_CALLERS, 1, sizes.seconds)
        _report(turn, f"{CAPACITY_CALLERS} callers in one process", calls, sizes.seconds)


def call_in_closed_loop(
    system: System,
    place: Place,
    workers: list[Worker],
    callers: int,
    processes: int,
    seconds: float,
    look: Callable[[], None] = lambda: None,
) -> Calls:
    """Call from that many threads, shared out among client processes."""
    shares = [callers // processes + (one < callers % processes) for one in range(processes)]
    return call_concurrently(system, place, workers, [[f"--callers={one}"] for one in shares], seconds, look)


def _report(turn: Turn, point: str, calls: Calls, seconds: float) -> None:
    times = calls.times()
    turn.add_wrong(calls.wrong, calls.errors)
    turn.add(point, RATE, calls.answered / seconds)
    turn.add(point, "p50 ms", percentile(times, 50) * 1000)
    turn.add(point, "p95 ms", percentile(times, 95) * 1000)
    turn.add(point, "client CPU, ms per call", calls.cpu_s / max(1, calls.answered) * 1000)
