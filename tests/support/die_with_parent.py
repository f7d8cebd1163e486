"""Run as a program: becomes the command it is given, and is killed when the process that started it ends.

Without this, servers would outlive a test run that is killed itself. It is a program of
its own because a `preexec_fn` is unsafe, and warned about, in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def main() -> None:
    """Ask the kernel for the signal, where there is such a thing, and become the command."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
