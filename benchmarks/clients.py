"""Client processes: started together, given the same moment to begin, and heard."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from example_project.processes import ChildProcess, cleanup_stack, signals_held, wait_until

from .callers import RAMP_S
from .client import READY
from .environment import child_environment
from .place import Place
from .systems import System

__all__ = ["Calls", "call_concurrently", "run_client"]

#: Seconds between writing down the moment to start and the moment, for all clients to have read it.
NOTICE_S = 0.2

#: Seconds between two looks at a client.
POLL_S = 0.05


class Client(ChildProcess):
    """A client process of a system."""

    def __init__(self, system: System, place: Place, *arguments: str) -> None:
        environment = child_environment(place.server.url)
        command = system.client_command(*arguments)
        super().__init__(f"client of {system.name}", command, place.new_file("client"), environment)

    def is_ready(self) -> bool:
        """Whether its callers are connected."""
        return READY in self.text().splitlines()

    def result(self, look: Callable[[], None]) -> dict[str, Any]:
        """Wait for the end, looking at something else meanwhile, and return what it printed.

        Raises:
            ProcessDiedError: it failed.
        """
        while self._process.poll() is None:
            look()
            time.sleep(POLL_S)
        if self._process.returncode:
            self.check()
        result: dict[str, Any] = json.loads([line for line in self.text().splitlines() if line.startswith("{")][-1])
        return result


@dataclass(frozen=True)
class Calls:
    """What all client processes of one measurement have seen.

    Attributes:
        calls: when each call was due and when it was answered, on the machine's monotonic clock.
        begin: of the measured part.
        end: of it.
        cpu_s: seconds of CPU of the clients meanwhile.
        wrong: how many answers were wrong or missing, at any time.
        errors: some of what was raised.
    """

    calls: list[tuple[float, float]]
    begin: float
    end: float
    cpu_s: float
    wrong: int
    errors: list[str]

    @property
    def answered(self) -> int:
        """How many calls were answered in the measured part."""
        return sum(self.begin <= done < self.end for _, done in self.calls)

    def times(self) -> list[float]:
        """Seconds that each call took which was due in the measured part.

        Whenever it was answered: among those answered in that part the slow ones would be missing,
        and the callers' first calls, which came all at once, would be there.
        """
        return [done - due for due, done in self.calls if self.begin <= due < self.end]


def run_client(system: System, place: Place, *arguments: str, watched: Sequence[ChildProcess] = ()) -> dict[str, Any]:
    """Run one client to its end and return what it printed, as long as the watched processes live."""
    with cleanup_stack() as stack:
        with signals_held():
            client = stack.enter_context(Client(system, place, *arguments))
        return client.result(lambda: _check(watched))


def call_concurrently(
    system: System,
    place: Place,
    watched: Sequence[ChildProcess],
    loads: Sequence[Sequence[str]],
    seconds: float,
    look: Callable[[], None] = lambda: None,
) -> Calls:
    """Let client processes call at the same time, one for each of the loads.

    Args:
        system: whose clients.
        place: where.
        watched: processes that must live meanwhile.
        loads: the arguments of each client.
        seconds: how long the measured part lasts.
        look: called now and then while the clients call.
    """
    start_file = place.new_file("start")
    common = ("load", f"--seconds={seconds}", f"--start={start_file}")
    clients = []
    with cleanup_stack() as stack:
        for load in loads:
            with signals_held():
                clients.append(stack.enter_context(Client(system, place, *common, *load)))
        for client in clients:
            wait_until(client.is_ready, f"the {client.name}", client)
        start = time.monotonic() + NOTICE_S
        draft = place.new_file("draft")
        draft.write_text(str(start))
        draft.rename(start_file)  # so that nobody reads half of it

        def watch() -> None:
            _check(watched)
            look()

        results = [client.result(watch) for client in clients]
    return Calls(
        calls=[(due, done) for result in results for due, done in result["calls"]],
        begin=start + RAMP_S,
        end=start + RAMP_S + seconds,
        cpu_s=sum(result["cpu_s"] for result in results),
        wrong=sum(result["wrong"] for result in results),
        errors=[error for result in results for error in result["errors"]],
    )


def _check(processes: Sequence[ChildProcess]) -> None:
    for process in processes:
        process.check()
