"""The pool and its processes, seen from the main process and from inside."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from billiard.common import human_status
from billiard.pool import EX_OK, EX_RECYCLE, SIG_SOFT_TIMEOUT
from billiard.process import current_process
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.concurrency.solo import TaskPool as SoloPool

__all__ = [
    "SIG_SOFT_TIMEOUT",
    "PoolProcess",
    "PreforkPool",
    "before_stop",
    "end_setups",
    "exit_status",
    "forks",
    "is_discarded",
    "is_solo",
    "jobs_of",
    "keep_written_jobs",
    "loaded_torch",
    "on_escape",
    "on_process_end",
    "pool_process_index",
    "pool_processes",
    "reap",
    "write_ahead",
    "write_now",
]


logger = logging.getLogger(__name__)

#: Bytes of a pipe at most, as Linux allows by default.
MOST_PIPE_B = 1 << 20

#: Bytes of the length that stands before each job in a pipe.
LENGTH_B = 4


def pool_process_index() -> int:
    """The index of this pool process among its siblings; 0 where there is only one."""
    return int(getattr(current_process(), "index", 0) or 0)


#: One process of a prefork pool.
PoolProcess = Any


def pool_processes(pool: Any) -> dict[PoolProcess, bool]:
    """The processes of a prefork pool on an event loop, and whether each has finished its setup; else nothing."""
    processes = getattr(pool, "_pool", None)
    starting = getattr(processes, "_waiting_to_start", None)
    if processes is None or starting is None:
        return {}
    return {process: process not in starting for process in processes._pool}


def before_stop(pool: Any, act: Callable[[], None]) -> None:
    """Call ``act`` before the pool waits for its processes or threads to end.

    At a cold shutdown Celery stops the pool in the signal handler, before anything else.
    """
    stop = pool.stop

    def act_and_stop() -> None:
        act()
        stop()

    pool.stop = act_and_stop


def end_setups(pool: Any) -> None:
    """End the processes of a prefork pool on an event loop that are not up yet; they have no job."""
    processes = getattr(pool, "_pool", None)
    came_up = getattr(processes, "_fileno_to_inq", None)
    if processes is None or came_up is None:
        return
    for process in processes._pool:
        if came_up.get(process.inqW_fd) is not process:
            process.terminate_controlled()


def on_process_end(pool: Any, tell: Callable[[PoolProcess], None]) -> None:
    """Tell of each process of a prefork pool on an event loop that has ended."""
    processes = pool._pool
    forget = processes.on_process_down
    if hasattr(forget, "tells"):
        return

    def tell_and_forget(process: PoolProcess) -> None:
        tell(process)
        forget(process)

    tell_and_forget.tells = True  # type: ignore[attr-defined]
    processes.on_process_down = tell_and_forget


def reap(pool: Any) -> None:
    """Let the pool look for ended processes now: their jobs are told, and others started."""
    pool._pool.maintain_pool()


def exit_status(process: PoolProcess) -> str | None:
    """How a process died, for people; None if it ended in order, was recycled or terminated by the pool's owner."""
    code = process.exitcode
    if code in (None, EX_OK, EX_RECYCLE) or process._controlled_termination:
        return None
    return str(human_status(code))


def loaded_torch() -> Any:
    """The torch module if something in this process imported it."""
    return sys.modules.get("torch")


def is_solo(pool: Any) -> bool:
    """Whether the pool runs its jobs in the thread of the event loop."""
    return isinstance(pool, SoloPool)


def forks(worker: Any) -> bool:
    """Whether the worker starts its pool processes by fork."""
    return getattr(worker, "pool_start_method", "fork") in (None, "fork")


def is_discarded(job: Any) -> bool:
    """Whether the pool has dropped a job it had not accepted yet.

    AsynPool does so when the connection is lost, without a word to the job's callbacks.
    """
    cache = getattr(job, "_cache", None)
    return cache is not None and job._job not in cache and not job.ready()


def jobs_of(pool: Any) -> list[Any]:
    """All jobs of a prefork pool that have not ended; of other pools none."""
    return list(getattr(getattr(pool, "_pool", None), "_cache", {}).values())


def on_escape(job: Any, tell: Callable[[BaseException], None]) -> None:
    """Tell of what flies past the callbacks of the threads pool, into a future that nobody reads.

    A future that is cancelled at shutdown never ran: its messages go back by themselves.
    """
    future = getattr(job, "f", None)
    if future is None:
        return

    def look(future: Any) -> None:
        if not future.cancelled() and (exc := future.exception()) is not None:
            tell(exc)

    future.add_done_callback(look)


def write_now(pool: Any, hub: Any) -> None:
    """Write jobs to the idle processes of a prefork pool at once.

    AsynPool leaves that to the loop's next look at its files, after all that the loop has to do before.
    """
    processes: Any = getattr(pool, "_pool", None)
    if hub is None or not getattr(processes, "outbound_buffer", None):
        return
    try:
        _write(processes, hub, _living(processes))
    except OSError as exc:  # it has just died, and the pool will notice
        logger.debug("Cannot write to a pool process: %r", exc)


def write_ahead(pool: Any, hub: Any) -> bool:
    """Write the one job that is to be written to a process that still runs another, which reads it right after.

    If that process ends before, the pool gives the job to the next one. False: the job waits for the
    end of the other, since its process has no room for all of it now.
    """
    processes: Any = pool._pool
    try:
        living = _living(processes)
        # The mark is gone when the job before the one that runs was written ahead, too.
        processes._busy_workers.update(living)
        with_room = [fd for fd in living if _has_room(fd, processes.outbound_buffer)]
        processes._busy_workers.difference_update(with_room)  # or nothing is written to them
        _write(processes, hub, with_room)
    except OSError as exc:
        logger.debug("Cannot write to a pool process: %r", exc)
    return not processes.outbound_buffer


def _living(processes: Any) -> list[int]:
    return [fd for fd, process in processes._fileno_to_inq.items() if process._is_alive()]


def _write(processes: Any, hub: Any, fds: list[int]) -> None:
    if fds and processes.outbound_buffer:
        hub.consolidate_callback(fds)


def _has_room(fd: int, jobs: Sequence[Any]) -> bool:
    """Whether the one job fits into the empty pipe to a process: of a part of it, the pool could not be flushed."""
    if len(jobs) != 1 or sys.platform != "linux":
        return False
    import fcntl  # noqa: PLC0415  not on Windows, where this package is imported, too
    import termios  # noqa: PLC0415

    size: int = jobs[0]._payload[2] + LENGTH_B
    unread = bytearray(4)
    fcntl.ioctl(fd, termios.FIONREAD, unread)
    room = fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)
    if room < size <= MOST_PIPE_B:
        room = fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, MOST_PIPE_B)
    return size <= room and not any(unread)


def keep_written_jobs(pool: Any, jobs: Callable[[], Iterable[Any]]) -> None:
    """Let the pool keep the jobs that are on their way to a process, when the connection or the worker ends.

    AsynPool then drops what no process has accepted yet. What was written to a process by then
    runs nevertheless, and nobody would hear of its end; at the end of a worker the process would
    wait 30 s for somebody to read its result, and the worker for the process.
    """
    flush = pool.flush
    if not callable(flush) or hasattr(flush, "keeps_written_jobs"):
        return

    def keep_and_flush() -> None:
        # What a dead process could not take waits to be written again, and a new process that got the
        # dead one's file numbers counts for its reader already.
        unwritten = getattr(getattr(pool, "_pool", None), "outbound_buffer", ())  # nothing without processes
        for job in jobs():
            process = getattr(job, "_write_to", None)
            if process is not None and process._is_alive() and job not in unwritten:
                job._accepted = True
                job._worker_pid = process.pid  # or nobody would hear of its death before it has accepted
        flush()

    keep_and_flush.keeps_written_jobs = True  # type: ignore[attr-defined]
    pool.flush = keep_and_flush
