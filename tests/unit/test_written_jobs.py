"""What a pool keeps when the connection is lost: the jobs on their way to a process, and no other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery_batching._celery_internals import keep_written_jobs


class Pool:
    """As far as a flush is concerned: drops what is not accepted."""

    def __init__(self, *jobs: Any) -> None:
        """A pool that has these jobs."""
        self.jobs = list(jobs)
        self._pool = SimpleNamespace(outbound_buffer=[])

    def flush(self) -> None:
        self.jobs = [job for job in self.jobs if job._accepted]


def a_job(pid: int | None, *, alive: bool = True) -> Any:
    process = None if pid is None else SimpleNamespace(pid=pid, _is_alive=lambda: alive)
    return SimpleNamespace(_write_to=process, _accepted=False, _worker_pid=None)


def test_a_job_that_was_written_is_kept_with_its_process() -> None:
    """So that its result, or the death of the process, is told."""
    job = a_job(7)
    pool = Pool(job)
    keep_written_jobs(pool, lambda: pool.jobs)
    pool.flush()
    assert [job] == pool.jobs
    assert (True, 7) == (job._accepted, job._worker_pid)


def test_other_jobs_are_dropped() -> None:
    """Never written; written to a process that died; put back to be written again, whoever counts for its reader."""
    put_back = a_job(7)
    pool = Pool(a_job(None), a_job(8, alive=False), put_back)
    pool._pool.outbound_buffer.append(put_back)
    keep_written_jobs(pool, lambda: pool.jobs)
    pool.flush()
    assert [] == pool.jobs


def test_a_pool_without_processes_is_flushed_as_ever() -> None:
    """Threads have no such jobs, and nothing to look at."""
    flushed: list[str] = []
    pool = SimpleNamespace(flush=lambda: flushed.append("flushed"))
    keep_written_jobs(pool, lambda: [SimpleNamespace(f=None)])
    pool.flush()
    assert ["flushed"] == flushed
