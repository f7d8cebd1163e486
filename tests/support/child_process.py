"""A child of the tests: a session and a log file of its own, ended by its pid together with its children."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil
import pytest

from tests.support import die_with_parent
from tests.support.waiting import PATIENCE_S, NotInTimeError, wait_until

Seen = TypeVar("Seen")

#: Which of the processes of pytest-xdist this is, and how many there are.
XDIST = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
COUNT = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

#: Below those that Linux takes for outgoing connections; each process of the test run has its own, since a server may
#: take seconds until it listens, and a test may stop it for some.
PORTS = range(20_000, 32_000)[XDIST % COUNT :: COUNT]


class ChildProcess:
    """One command, running; as a context manager it is terminated at the end."""

    def __init__(self, argv: Sequence[str], *, folder: Path, env: Mapping[str, str] | None = None) -> None:
        """Start `argv` in `folder`, where its output goes to `output.log`."""
        self.folder = folder
        self.log_path = folder / "output.log"
        shim = [sys.executable, "-IS", die_with_parent.__file__]
        with self.log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [*shim, *argv],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The command's own process id: the start helper becomes the command."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the command has not ended yet."""
        if self._popen.returncode is not None:
            return False
        # The ended process is left unreaped: until `wait` its pid, and so the
        # number of its group, cannot go to a stranger.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, flags) is None

    def children(self) -> list[int]:
        """The pids of the direct children, such as the processes of a prefork pool."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def log(self) -> str:
        """What the command has written so far."""
        return self.log_path.read_text(errors="replace")

    def wait_for(self, predicate: Callable[[], Seen], description: str, timeout: float = PATIENCE_S) -> Seen:
        """Like `wait_until`, but fail at once, with the log, when the command ends before."""

        def look() -> Seen:
            if not self.running:
                code = self.wait()
                pytest.fail(f"{description}: the process ended with {code}\n{self.log()}")
            return predicate()

        return wait_until(look, description, timeout, saw=lambda: self.log()[-4000:])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command alone, not to its children."""
        self._popen.send_signal(number)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for the end and return the exit status; children that stayed behind are killed."""
        if self._popen.returncode is None:
            wait_until(lambda: not self.running, f"process {self.pid} ends", timeout, saw=self.log)
            self._kill_group()
        return self._popen.wait()

    def terminate(self, timeout: float = PATIENCE_S) -> int:
        """End it with SIGTERM, after `timeout` seconds with SIGKILL; return the exit status."""
        if self.running:
            self.signal(signal.SIGTERM)
            if not self._ends_within(timeout):
                return self.kill()
        return self.wait()

    def kill(self) -> int:
        """End it and its children at once, as a power cut would; return the exit status."""
        if self._popen.returncode is None:
            self._kill_group()
        return self.wait()

    def listens_on(self, port: int) -> bool:
        """Whether it is this very process that serves the port."""
        sockets = psutil.Process(self.pid).net_connections("tcp")
        return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in sockets)

    def _ends_within(self, timeout: float) -> bool:
        try:
            wait_until(lambda: not self.running, "it ends", timeout)
        except NotInTimeError:
            return False
        return True

    def _kill_group(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)

    def __enter__(self) -> ChildProcess:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Give the running command."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Terminate it."""
        self.terminate()


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody used a moment ago, all different.

    The kernel gives none of them to an outgoing connection before its owner has come up.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = secrets.choice(PORTS)  # not `random`, which pytest-randomly seeds alike in all processes
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports += [port] if port not in ports else []
    return ports
