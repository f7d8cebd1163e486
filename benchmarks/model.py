"""The simulated model, in the worker: sleeps as long as a model would run, and notes when it did.

It sleeps and takes no CPU, as a model on an accelerator does not, so that what is left is the
systems' own cost. Standard library only, for the environments of all systems.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .payload import answer

__all__ = ["NOTHING", "SIMULATED", "Cost", "Model", "Run", "read_runs"]

_RUN_VARIABLE = "BENCHMARKS_MODEL_RUN_S"
_ITEM_VARIABLE = "BENCHMARKS_MODEL_ITEM_S"
_LOG_VARIABLE = "BENCHMARKS_MODEL_LOG"


@dataclass(frozen=True)
class Cost:
    """How long the model takes: ``run_s`` seconds per run, and ``item_s`` more per item in it."""

    run_s: float
    item_s: float

    def environment(self, log: Path) -> dict[str, str]:
        """The variables that tell a worker's model its cost and the file for its runs."""
        return {_RUN_VARIABLE: str(self.run_s), _ITEM_VARIABLE: str(self.item_s), _LOG_VARIABLE: str(log)}


#: 5 ms to start, and 0.05 ms for each item: batches pay.
SIMULATED = Cost(0.005, 0.00005)

#: A model that answers at once, to see the systems' own speed.
NOTHING = Cost(0.0, 0.0)


@dataclass(frozen=True)
class Run:
    """One run of the model: its begin and end on the machine's monotonic clock, and how many items it had."""

    begin: float
    end: float
    items: int


class Model:
    """The model of one worker, as its environment describes it."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._cost = Cost(float(environment.get(_RUN_VARIABLE, 0)), float(environment.get(_ITEM_VARIABLE, 0)))
        self._log = environment.get(_LOG_VARIABLE, os.devnull)
        self._file: int | None = None

    def run(self, texts: Iterable[str]) -> list[int]:
        """One answer per text, in the same order."""
        begin = time.monotonic()
        answers = [answer(text) for text in texts]
        pause = self._cost.run_s + self._cost.item_s * len(answers)
        if pause:
            time.sleep(max(0.0, begin + pause - time.monotonic()))
        self._note(Run(begin, time.monotonic(), len(answers)))
        return answers

    def _note(self, run: Run) -> None:
        if self._file is None:  # on the first run, which is after the fork of a pool process
            self._file = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(self._file, f"{run.begin:.6f} {run.end:.6f} {run.items}\n".encode())


def read_runs(log: Path) -> list[Run]:
    """The runs noted so far, in order of their begin."""
    lines = log.read_text(encoding="ascii").splitlines() if log.exists() else []
    runs = [Run(float(begin), float(end), int(items)) for begin, end, items in map(str.split, lines)]
    return sorted(runs, key=lambda run: run.begin)
