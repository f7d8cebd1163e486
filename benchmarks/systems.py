"""The systems that are compared: which Python, app and pool each runs on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .apps.common import QUEUE

__all__ = ["BATCHES_PYTHON", "REFERENCE", "ROOT", "System", "find_systems"]

#: The folder with this package, which the children import too.
ROOT = Path(__file__).resolve().parent.parent

#: The system that the others are set in relation to.
REFERENCE = "stock"

#: The environment of celery-batches; ``make bench`` makes it.
BATCHES_PYTHON = ROOT / ".venv-celery-batches" / "bin" / "python"


@dataclass(frozen=True)
class System:
    """One system: what to run, and on what.

    Attributes:
        name: as in tables and on the command line.
        python: the interpreter of its environment, for worker and callers.
        app: the module with its app and its task.
        pool: the worker's pool.
    """

    name: str
    python: Path
    app: str
    pool: str

    def worker_command(self, node: str) -> list[str]:
        """The worker's command line: one process or thread for the model, and Celery's defaults."""
        command = [str(self.python), "-m", "celery", "-A", self.app, "worker", "-P", self.pool, "-c", "1"]
        command += ["-Q", QUEUE, "-n", f"{node}@%h", "-l", "WARNING", "--without-mingle", "--without-gossip"]
        return command

    def client_command(self, *arguments: str) -> list[str]:
        """The command line of a client process."""
        return [str(self.python), "-m", "benchmarks.client", self.app, *arguments]


def find_systems() -> dict[str, System | None]:
    """The systems by name, in the order they run in; None for one whose environment is missing."""
    ours = Path(sys.executable)
    batches = System("celery-batches", BATCHES_PYTHON, "benchmarks.apps.batches_lib", "prefork")
    return {
        REFERENCE: System(REFERENCE, ours, "benchmarks.apps.stock", "prefork"),
        batches.name: batches if BATCHES_PYTHON.exists() else None,
        **{pool: System(pool, ours, "benchmarks.apps.batched", pool) for pool in ("prefork", "threads", "solo")},
    }
