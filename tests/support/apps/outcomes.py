"""Batch tasks whose model returns, or raises, what the caller asks for; four or eight calls make a full batch.

With the environment variable below the worker also notes Celery's signals.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from celery import Celery, signals

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: Set in the environment of a worker that is to note signals.
NOTE_SIGNALS = "OUTCOMES_NOTE_SIGNALS"

#: A batch leaves when it is full and not before, so that tests know who shares it.
OF_FOUR = {"max_batch_size": 4, "max_wait": 60}
OF_EIGHT = {"max_batch_size": 8, "max_wait": 60}


def torch_rows(xs: list[int]) -> Any:
    """A tensor with a row for each item; torch is loaded only for this."""
    import torch  # noqa: PLC0415  slow, and not everywhere

    return torch.tensor([[2 * x, x] for x in xs])


#: What a `run` may return: one result per item, in these shapes.
GOOD: dict[str, Callable[[list[int]], Any]] = {
    "list": lambda xs: [[2 * x, x] for x in xs],
    "tuple": lambda xs: tuple([2 * x, x] for x in xs),
    "generator": lambda xs: ([2 * x, x] for x in xs),
    "numpy rows": lambda xs: np.array([[2 * x, x] for x in xs]),
    "numpy rows in a list": lambda xs: [np.array([2 * x, x]) for x in xs],
    "numpy scalars": lambda xs: [[np.int64(2 * x), np.float32(x)] for x in xs],
    "torch rows": torch_rows,
}

#: What it may not, with the name by which the error calls it.
BAD: dict[str, tuple[Callable[[list[int]], Any], str]] = {
    "dict": (lambda xs: dict.fromkeys(xs, 1), "dict"),
    "set": (set, "set"),
    "str": (lambda xs: "x" * len(xs), "str"),
    "bytes": (lambda xs: b"x" * len(xs), "bytes"),
    "None": (lambda xs: None, "None"),
    "number": (lambda xs: 7, "int"),
    "array without axes": (lambda xs: np.array(7), "ndarray"),
}

#: Wrong counts, by how many results come for four items.
COUNTS: dict[int, Callable[[list[int]], Any]] = {
    0: lambda xs: [],
    3: lambda xs: xs[:-1],
    5: lambda xs: [*xs, 0],
}

ERRORS: dict[str, type[BaseException]] = {"ValueError": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt}


def make_app(site: Site) -> Celery:
    """An app with one task for each way in which a batch may end."""
    app = site.celery("outcomes")
    journal = Journal(site)
    if NOTE_SIGNALS in os.environ:
        note_signals(journal)

    @app.task(base=BatchTask, name="outcomes.shape", **OF_FOUR)
    def shape(xs: list[int], kind: list[str]) -> Any:
        return {**GOOD, **{name: output for name, (output, _) in BAD.items()}}[kind[0]](xs)

    @app.task(base=BatchTask, name="outcomes.count", **OF_FOUR)
    def count(xs: list[int], number: list[int]) -> Any:
        return COUNTS[number[0]](xs)

    @app.task(base=BatchTask, name="outcomes.entries", **OF_EIGHT)
    def entries(xs: list[Any]) -> list[Any]:
        """Give `x` doubled, an error for a negative `x`, and what cannot be encoded for None."""
        return [threading.Lock() if x is None else ValueError(f"bad {x}") if x < 0 else [2 * x] for x in xs]

    @app.task(base=BatchTask, name="outcomes.arrays", **OF_FOUR)
    def arrays(xs: list[int]) -> list[Any]:
        return [{"scores": np.array([x, 2 * x]), "best": [np.float64(x), (np.int64(x), np.bool_(True))]} for x in xs]

    @app.task(base=BatchTask, name="outcomes.split", **OF_EIGHT)
    def split(xs: list[int]) -> list[int]:
        return doubled(journal, xs)

    @app.task(base=BatchTask, name="outcomes.together", on_error="fail", **OF_EIGHT)
    def together(xs: list[int]) -> list[int]:
        return doubled(journal, xs)

    @app.task(base=BatchTask, name="outcomes.fail", **OF_FOUR)
    def fail(xs: list[int], kind: list[str]) -> None:
        raise ERRORS[kind[0]](f"no model for {len(xs)}")

    @app.task(base=BatchTask, bind=True, name="outcomes.mixed", max_batch_size=8, max_wait=1.5)
    def mixed(self: BatchTask, xs: list[int]) -> list[Any]:
        """Give `x` doubled, an error for a negative `x`, and one retry for 0."""
        calls = zip(xs, self.batch.requests, strict=True)
        return [
            self.batch.retry(countdown=0) if not x and not call.retries else ValueError(x) if x < 0 else 2 * x
            for x, call in calls
        ]

    return app


def doubled(journal: Journal, xs: list[int]) -> list[int]:
    """Double the items, or raise an error that names the negative ones."""
    journal.record("run", items=xs)
    if bad := [x for x in xs if x < 0]:
        raise ValueError(f"bad {bad}")
    return [2 * x for x in xs]


def note_signals(journal: Journal) -> None:
    """Write the signals about ends of tasks down."""

    def note_failure(task_id: str, exception: BaseException, **_: Any) -> None:
        journal.record("task_failure", id=task_id, error=type(exception).__name__)

    def note_postrun(task_id: str, state: str, **_: Any) -> None:
        journal.record("task_postrun", id=task_id, state=state)

    signals.task_failure.connect(note_failure, weak=False)
    signals.task_postrun.connect(note_postrun, weak=False)


app = make_app(Site.from_environ())
