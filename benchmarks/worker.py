"""A worker of one system as a child process: started, warmed up, looked at and ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from example_project.processes import ChildProcess, cleanup_stack, signals_held

from .apps.common import BATCH_SIZE, BATCH_SIZE_VARIABLE
from .clients import run_client
from .environment import child_environment
from .model import Cost, Run, read_runs
from .place import Place
from .results import Turn
from .systems import System

__all__ = ["Worker", "running_workers"]

#: Calls that a worker has answered before anything is measured.
WARM_UP_CALLS = 300


class Worker(ChildProcess):
    """A worker, with the processes of its pool.

    Args:
        system: what runs.
        place: where: server and folder.
        cost: of its model.
        number: tells the workers of one measurement apart.
        batch_size: the most items in a batch.
    """

    def __init__(self, system: System, place: Place, cost: Cost, number: int, batch_size: int) -> None:
        self._log = place.new_file("runs")
        own = {**cost.environment(self._log), BATCH_SIZE_VARIABLE: str(batch_size)}
        environment = child_environment(place.server.url, **own)
        command = system.worker_command(f"{system.name}-{number}")
        super().__init__(f"worker of {system.name}", command, place.new_file("worker"), environment)
        self._process_info = psutil.Process(self.pid)

    def _processes(self) -> list[psutil.Process]:
        return [self._process_info, *self._process_info.children(recursive=True)]

    def cpu_s(self) -> float:
        """Seconds of CPU so far, of the main process and the pool's."""
        total = 0.0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def memory_mb(self) -> float:
        """Resident memory of the main process and the pool's, in MB; pages they share count for each."""
        total = 0
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 1e6

    def runs(self, since: float, until: float = float("inf")) -> list[Run]:
        """The model's runs that began between two moments."""
        return [run for run in read_runs(self._log) if since <= run.begin < until]


@contextmanager
def running_workers(
    turn: Turn, system: System, place: Place, cost: Cost, number: int = 1, batch_size: int = BATCH_SIZE
) -> Iterator[list[Worker]]:
    """That many workers on an empty server, warmed up; leaving the block ends them and empties the server."""
    place.server.clear()
    with cleanup_stack() as stack:
        workers = []
        for one in range(number):
            with signals_held():
                workers.append(stack.enter_context(Worker(system, place, cost, one, batch_size)))
        warm = run_client(system, place, "warm", f"--items={WARM_UP_CALLS * number}", watched=workers)
        turn.add_wrong(warm["wrong"])
        yield workers
