"""The demo's tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from example_project.batch_log import LoggedBatch
    from example_project.load import Load

__all__ = ["Row", "comparison", "reasons", "sizes"]

#: Characters of the longest bar in the table of sizes.
BAR_WIDTH = 32


@dataclass(frozen=True)
class Row:
    """One line of the comparison."""

    name: str
    load: Load
    mean_batch: float
    wrong: int


def comparison(rows: Iterable[Row], title: str) -> Table:
    """One row per way of running the same texts."""
    table = _table(title, "", "items/s", "p50 ms", "p95 ms", "mean batch", "wrong answers")
    table.caption = "Plain Celery runs the model once per call."
    for row in rows:
        table.add_row(
            row.name,
            f"{row.load.rate:.0f}",
            f"{row.load.percentile_ms(50):.0f}",
            f"{row.load.percentile_ms(95):.0f}",
            f"{row.mean_batch:.1f}",
            str(row.wrong),
            style="bold red" if row.wrong else None,
        )
    return table


def sizes(batches: Sequence[LoggedBatch]) -> Table:
    """How many batches there were of each size."""
    table = _table("Batch sizes", "size", "batches")
    table.add_column("", justify="left", style="cyan", no_wrap=True)
    counts = Counter(batch.size for batch in batches)
    for size, count in sorted(counts.items()):
        table.add_row(str(size), str(count), "█" * max(1, round(BAR_WIDTH * count / max(counts.values()))))
    return table


def reasons(batches: Sequence[LoggedBatch]) -> Table:
    """Why the batches left when they did."""
    table = _table("Reasons", "reason", "batches", "items")
    counts = Counter(batch.reason for batch in batches)
    for reason, count in counts.most_common():
        items = sum(batch.size for batch in batches if batch.reason == reason)
        table.add_row(reason, str(count), str(items))
    return table


def _table(title: str, first: str, *others: str) -> Table:
    """A table with its first column to the left and figures to the right."""
    table = Table(title=f"\n{title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
