"""Child processes that are ended when their owner leaves, and waiting for them to be ready."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType, TracebackType

    from typing_extensions import Self

__all__ = ["STOP_SIGNALS", "ChildProcess", "ProcessDiedError", "cleanup_stack", "signals_held", "wait_until"]

#: Ctrl-C, ``kill``, and the terminal being closed.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

#: Seconds a child has to end by itself after SIGTERM: a Celery worker finishes what it is running.
GRACE = 5.0

#: Seconds between two looks while waiting.
POLL = 0.05

#: How many lines of a dead child's output an error shows.
TAIL = 25


class ProcessDiedError(RuntimeError):
    """A child ended that should be running; the message holds the end of its output."""


class ChildProcess:
    """A child with its output in a file. Leaving the ``with`` block ends it, by its pid.

    It gets a process group of its own: Ctrl-C reaches only the owner, which ends its children in
    order, and what a child has started itself can be ended with it.
    """

    def __init__(self, name: str, command: Sequence[str], output: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.output = output
        with output.open("wb") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the child's process group."""
        return self._process.pid

    def check(self) -> None:
        """Raise ProcessDiedError unless the child is running."""
        status = self._process.poll()
        if status is not None:
            tail = "\n".join(self.text().splitlines()[-TAIL:])
            raise ProcessDiedError(f"The {self.name} ended with status {status}. Its last output:\n{tail}")

    def text(self) -> str:
        """The output so far."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End the child: SIGTERM, then, if it does not end in time, SIGKILL to its whole group."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def wait_until(ready: Callable[[], bool], what: str, child: ChildProcess, timeout: float = 120.0) -> None:
    """Return once ``ready()`` holds.

    Raises:
        ProcessDiedError: the child ended meanwhile.
        TimeoutError: ``timeout`` seconds have passed; the message says ``what`` was waited for.
    """
    deadline = time.monotonic() + timeout
    while not ready():
        child.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {timeout:.0f} s for {what}, in vain")
        time.sleep(POLL)


@contextmanager
def signals_held() -> Iterator[None]:
    """Deliver the STOP_SIGNALS only at the end of the block; main thread only.

    Without this, Ctrl-C between the start of a child and the moment it is remembered leaves the
    child behind, and a second Ctrl-C breaks off the cleaning up.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)

    previous = {number: signal.signal(number, hold) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for pending in held:
            signal.raise_signal(pending)


@contextmanager
def cleanup_stack() -> Iterator[ExitStack]:
    """An ExitStack whose clean-up runs to its end, however often Ctrl-C is pressed meanwhile."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        with signals_held():
            stack.close()
