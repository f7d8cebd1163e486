"""The scenario ``scale``: memory over a long backlog, workers that share a queue, and what idle ones cost."""

from __future__ import annotations

import time

from .backlog import drain
from .closed_loop import CAPACITY_CALLERS, call_in_closed_loop
from .model import NOTHING, SIMULATED
from .options import Sizes
from .place import Place
from .results import Turn
from .systems import System
from .worker import running_workers

__all__ = ["measure_scale"]

#: The part of the backlog after which memory should grow no more.
START = 0.1

#: Looks at the memory over a backlog.
LOOKS = 100

#: Workers that share a queue.
WORKERS = 4

#: Seconds for which an idle worker is watched, and those before it in which the last calls settle.
IDLE_S, QUIET_S = 10.0, 2.0


def measure_scale(turn: Turn, system: System, place: Place, sizes: Sizes) -> None:
    """All of it, one after the other."""
    _memory(turn, system, place, sizes.scale_items)
    _sharing(turn, system, place, sizes.items)
    _idle(turn, system, place)
    _connections(turn, system, place, sizes.seconds)


def _memory(turn: Turn, system: System, place: Place, items: int) -> None:
    point = f"{items:,} queued"
    looks: list[tuple[int, float]] = []
    with running_workers(turn, system, place, NOTHING) as workers:

        def look(stored: int) -> None:
            if not looks or stored >= looks[-1][0] + items / LOOKS:
                looks.append((stored, workers[0].memory_mb()))

        drained = drain(turn, system, place, workers, items, look)
        looks.append((items, workers[0].memory_mb()))
    later = [memory for stored, memory in looks if stored >= items * START]
    turn.add(point, "items/s", items / (drained.end - drained.begin))
    turn.add(point, f"RSS after {items * START:,.0f}, MB", later[0])
    turn.add(point, "RSS at the end, MB", later[-1])
    turn.add(point, "RSS, most growth after that, %", (max(later) / later[0] - 1) * 100)


def _sharing(turn: Turn, system: System, place: Place, items: int) -> None:
    point = f"{WORKERS} workers, {items:,} queued"
    with running_workers(turn, system, place, SIMULATED, WORKERS) as workers:
        drained = drain(turn, system, place, workers, items)
        shares = [sum(run.items for run in worker.runs(drained.begin)) for worker in workers]
    turn.add(point, "items/s", items / (drained.end - drained.begin))
    for rank, share in enumerate(sorted(shares), 1):
        turn.add(point, f"items of worker {rank}, by share", share)


def _idle(turn: Turn, system: System, place: Place) -> None:
    with running_workers(turn, system, place, NOTHING) as workers:
        time.sleep(QUIET_S)
        cpu_s = workers[0].cpu_s()
        turn.add("idle worker", "commands/s", place.server.commands(IDLE_S) / IDLE_S)
        turn.add("idle worker", "CPU, %", (workers[0].cpu_s() - cpu_s) / IDLE_S * 100)


def _connections(turn: Turn, system: System, place: Place, seconds: float) -> None:
    seen = [0]
    with running_workers(turn, system, place, SIMULATED) as workers:
        before = place.server.connections()
        calls = call_in_closed_loop(
            system,
            place,
            workers,
            CAPACITY_CALLERS,
            1,
            seconds,
            lambda: seen.append(place.server.connections()),
        )
    turn.add_wrong(calls.wrong, calls.errors)
    turn.add(f"client process, {CAPACITY_CALLERS} threads", "connections", max(seen) - before)
