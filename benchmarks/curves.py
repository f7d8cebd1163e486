"""Which of the results are drawn: rates and times against load."""

from __future__ import annotations

from collections.abc import Sequence

from .closed_loop import RATE
from .open_loop import OFFERED
from .plot import Curve, Panel, svg
from .results import Results, Row

__all__ = ["draw"]


def draw(results: Results, systems: Sequence[str]) -> str:
    """The SVG: calls per second against callers, and times against callers and against the calls offered."""
    times = "ms (p95 dashed)"
    return svg(
        [
            Panel("Throughput, closed loop", "callers", RATE, _curves(results, systems, "closed", RATE)),
            Panel("Time of a call, closed loop", "callers", times, _times(results, systems, "closed")),
            Panel("Time of a call, Poisson", OFFERED, times, _times(results, systems, "open")),
        ],
        systems,
    )


def _times(results: Results, systems: Sequence[str], scenario: str) -> list[Curve]:
    halves = _curves(results, systems, scenario, "p50 ms")
    tails = _curves(results, systems, scenario, "p95 ms")
    return [*halves, *(Curve(curve.name, curve.points, dashed=True) for curve in tails)]


def _curves(results: Results, systems: Sequence[str], scenario: str, metric: str) -> list[Curve]:
    points = dict.fromkeys(row.point for row in results.rows() if row.scenario == scenario)
    curves = []
    for system in systems:
        places = []
        for point in points:
            x = _load(results, scenario, point, system)
            y = results.median(Row(scenario, point, metric), system)
            if x and y:
                places.append((x, y))
        if places:
            curves.append(Curve(system, sorted(places)))
    return curves


def _load(results: Results, scenario: str, point: str, system: str) -> float | None:
    """What a point lies over: its callers in a closed loop, else the calls offered per second."""
    if scenario == "open":
        return results.median(Row(scenario, point, OFFERED), system)
    number, _, rest = point.partition(" ")
    return float(number) if rest in ("caller", "callers") else None
