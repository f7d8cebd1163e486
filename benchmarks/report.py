"""The table and the JSON of what was measured."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from .options import Sizes
from .results import Results, Row
from .systems import REFERENCE

__all__ = ["table", "write_json"]


def table(results: Results, systems: Sequence[str]) -> str:
    """A Markdown table for each scenario: medians over the rounds, and their ratio to stock Celery's."""
    parts = []
    for scenario, rows in groupby(results.rows(), lambda row: row.scenario):
        lines = [[row.point, row.metric, *(_cell(results, row, system) for system in systems)] for row in rows]
        parts.append(f"{scenario}\n\n{_markdown([[*('', ''), *systems], *lines])}")
    return "\n\n".join(parts)


def _cell(results: Results, row: Row, system: str) -> str:
    value, reference = results.median(row, system), results.median(row, REFERENCE)
    if value is None:
        return ""
    text = _number(value)
    return text if system == REFERENCE or not reference else f"{text} (x{_number(value / reference)})"


def _number(value: float) -> str:
    """Three digits that count, and no more."""
    if abs(value) >= 100:  # noqa: PLR2004  three digits before the point
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    head, *body = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    rule = "| " + " | ".join("-" * width for width in widths) + " |"
    return "\n".join([head, rule, *body])


def write_json(path: Path, results: Results, systems: Sequence[str], sizes: Sizes, rounds: int) -> None:
    """Write medians, ratios and every single value, with what they were measured on."""
    medians = [_summary(results, row, systems) for row in results.rows()]
    document = {
        "machine": {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
        "rounds": rounds,
        "sizes": vars(sizes),
        "wrong": results.wrong,
        "notes": results.notes,
        "medians": medians,
        "samples": results.as_json(),
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _summary(results: Results, row: Row, systems: Sequence[str]) -> dict[str, Any]:
    values = {system: results.median(row, system) for system in systems}
    found = {system: value for system, value in values.items() if value is not None}
    reference = found.get(REFERENCE)
    ratios = {system: value / reference for system, value in found.items()} if reference else {}
    return {**vars(row), "values": found, f"ratio_to_{REFERENCE}": ratios}
