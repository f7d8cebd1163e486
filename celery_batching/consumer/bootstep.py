"""The bootstep that puts batching into Celery's consumer: its life from start to shutdown."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from celery import bootsteps

from .._celery_internals import (
    PreforkPool,
    before_end,
    before_stop,
    check_request_stack,
    end_on_signal,
    end_setups,
    end_worker,
    exception_info,
    forks,
    in_loop_thread,
    jobs_of,
    keep_prefetch,
    keep_written_jobs,
    on_escape,
    raised,
)
from ..collector import collect_seldom, keep_for_good
from ..options import WorkerOptions
from ..pool.run_batch import prepare_tasks
from ..task import BatchTask
from .batcher import Batcher
from .connection import lease_connections, outlive_consumer_timeout
from .intake import to_item
from .leaving import Leaving
from .prefetch import Prefetch
from .reaper import Reaper
from .refusal import refuse_bad_messages
from .slots import slots_of
from .startup import check_pool, consumed_tasks, warn_of_limits

__all__ = ["BatchingStep"]

logger = logging.getLogger(__name__)


class BatchingStep(bootsteps.StartStopStep):
    """Takes the requests of batch tasks out of the consumer's hands, after Celery's own strategy.

    The strategy has by then looked at revocation, sent ``task-received`` and waited for the ETA
    and the rate limit. Requests of other tasks go on as ever.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        check_request_stack()
        self._consumer = consumer
        self._mail: deque[Callable[[], None]] = deque()
        self._loop_runs = False  # an event loop that functions can be handed over to
        self._started = False
        self._prepared = self._setup_runs = False
        self._high_priority_first = False
        options = WorkerOptions.resolve({}, os.environ, consumer.app.conf)
        self._reaper = Reaper(consumer, options.max_restarts_per_minute, self._on_too_many_deaths)
        self._batcher = Batcher(
            consumer,
            slots_of(consumer.controller),
            self._hand_over,
            self._reaper.has_worked,
            self._on_setup_error,
            bulk=options.bulk,
        )
        self._prefetch = Prefetch(consumer)
        self._served: set[str] = set()
        tasks = consumed_tasks(consumer.app)
        self._serve(tasks)
        if tasks:
            outlive_consumer_timeout(consumer)
            if options.bulk:
                lease_connections(consumer, options.lease, self._batcher.burst)
        refuse_bad_messages(consumer)
        self._leaving = Leaving(consumer)
        before_end(consumer, self._begin_to_leave)
        before_stop(consumer.pool, self._end_setup)
        self._wrap(consumer)

    def _serve(self, tasks: list[BatchTask]) -> None:
        """Get ready for these tasks; workers that consume none of them are left as they are.

        Raises:
            BatchingError: they cannot run on this pool.
        """
        if not tasks:
            return
        worker = self._consumer.controller
        check_pool(self._consumer.pool, forks(worker))
        warn_of_limits(self._consumer.pool, tasks, worker)
        self._prefetch.cover(tasks)
        self._served.update(task.name for task in tasks)

    def _wrap(self, consumer: Any) -> None:
        """Stand between the consumer and its pool, where strategies will look when they are built."""
        pass_on = consumer.on_task_request

        def on_task_request(request: Any) -> None:
            if isinstance(request.task, BatchTask):
                self._take_in(request)
            else:
                pass_on(request)
                self._batcher.read_backlog_first()

        consumer.on_task_request = on_task_request

    def start(self, consumer: Any) -> None:
        """Start, and start again after a reconnect."""
        if consumer.hub is None:
            self._begin()

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:  # noqa: ARG002
        """The same where there is an event loop: the pool takes jobs from here on."""
        self._loop_runs = True
        self._begin()
        if self._served:
            self._leaving.watch()
            self._reaper.start()

    def stop(self, consumer: Any) -> None:
        """The connection is lost or the worker ends: what is buffered belongs to the broker again."""
        self._started = self._loop_runs = False  # the pool's callbacks are on their own from here
        self._reaper.stop()
        self._leaving.unwatch()
        running = self._batcher.close(channel_lives=self._leaving.began)
        if self._leaving.began and self._served:
            self._leaving.return_waiting(running)
        self._read_mail()
        if self._served:
            keep_prefetch(consumer)

    def _begin_to_leave(self) -> None:
        self._batcher.stop_sending()
        self._leaving.begin()

    def _end_setup(self) -> None:
        """Let no model that is still being loaded delay the end; nothing runs yet where it is loaded.

        A thread cannot be interrupted, but the next signal then ends the whole process at once.
        """
        pool = self._consumer.pool
        if self._served:
            end_setups(pool)
        if self._setup_runs and not isinstance(pool, PreforkPool):
            logger.warning("A setup is still running; the worker ends after it, or with the next signal")
            end_on_signal()

    def info(self, consumer: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ARG002
        """Shown by ``celery inspect stats`` and on Flower's page of the worker."""
        return {"batching": self._batcher.snapshot()}

    def _begin(self) -> None:
        self._started = True
        keep_written_jobs(self._consumer.pool, self._jobs_to_keep)
        self._high_priority_first = self._consumer.connection.transport.driver_type == "amqp"
        if self._prepared:
            self._batcher.open()
        else:
            self._prepare()

    def _jobs_to_keep(self) -> list[Any]:
        """Called before the pool drops what it has not written: a job that it got meanwhile would be lost unseen."""
        self._batcher.stop_sending()
        if self._leaving.began:
            return jobs_of(self._consumer.pool)  # all of them: their messages can still be acked
        return self._batcher.jobs()

    def _prepare(self) -> None:
        """Open the batcher once a pool process has set its tasks up, or end the worker."""
        names = [task.name for task in consumed_tasks(self._consumer.app)]
        self._setup_runs = True
        job = self._consumer.pool.apply_async(
            prepare_tasks,
            args=(names,),
            callback=lambda error: self._hand_over(lambda: self._on_prepared(error)),
            error_callback=lambda info, **_: self._hand_over(lambda: self._on_prepared(repr(raised(info)))),
        )
        on_escape(job, lambda exc: self._hand_over(lambda: self._on_prepared(repr(exc))))

    def _on_prepared(self, error: Any) -> None:
        self._setup_runs = False
        if error is not None:
            self._on_setup_error(str(error))
        else:
            if not self._prepared:
                keep_for_good()
                if isinstance(self._consumer.pool, PreforkPool):
                    collect_seldom()
            self._prepared = True
            if self._started:
                self._batcher.open()

    def _on_setup_error(self, message: str) -> None:
        logger.critical("The worker ends, since the setup of a batch task failed: %s", message)
        end_worker()

    def _on_too_many_deaths(self, reason: str) -> None:
        logger.critical("The worker ends: %s", reason)
        end_worker()

    def _take_in(self, request: Any) -> None:
        try:
            if request.task.name not in self._served:  # sent to this queue by the caller alone
                self._serve([request.task])
                self._reaper.start()
            item = to_item(request, time.monotonic(), self._high_priority_first)
        except Exception as exc:
            _fail(request, exc)
        else:
            self._batcher.add(item)

    def _hand_over(self, function: Callable[[], None]) -> None:
        """Run ``function`` in the thread of the event loop, in the order of the calls.

        While no loop runs (at shutdown, or on transports without one) there is nobody to hand
        over to, and it runs here.
        """
        self._mail.append(function)
        if not self._loop_runs or in_loop_thread(self._consumer.hub):
            self._read_mail()
        else:
            self._consumer.hub.call_soon(self._read_mail)

    def _read_mail(self) -> None:
        while self._mail:
            try:
                function = self._mail.popleft()
            except IndexError:
                return  # another thread was faster
            function()


def _fail(request: Any, exc: Exception) -> None:
    try:
        request.on_failure(exception_info(exc))  # stores, acknowledges and logs it
    except Exception:
        logger.exception("Cannot store the failure of %s[%s]", request.name, request.id)
