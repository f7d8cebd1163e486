"""A batch task with known answers, some of whose items are poison or slow; each process keeps a file of its runs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.site import Site

#: The environment variable of a worker that names the folder of the files.
RUNS = "BATCHING_TEST_RUNS"

#: The most items in a batch.
SIZE = 16

#: Seconds that the model takes for a batch, and for one that holds a slow item.
RUN_S, SLOW_S = 0.1, 1.0


def answer(x: int) -> int:
    """The right answer to a good or slow item."""
    return 7 * x + 1


def note(what: str, xs: list[int]) -> None:
    """Write down that a run begins or ends: in a file, since Redis itself is not to be relied on."""
    line = json.dumps({"what": what, "pid": os.getpid(), "items": xs})
    with (Path(os.environ[RUNS]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(f"{line}\n")


def make_app(site: Site) -> Celery:
    """An app whose model does with each item what its kind says."""
    app = site.celery("chaotic")

    @app.task(base=BatchTask, name="chaotic.model", max_batch_size=SIZE)
    def model(xs: list[int], kinds: list[str]) -> list[Any]:
        note("begin", xs)
        time.sleep(SLOW_S if "slow" in kinds else RUN_S)  # noqa: TID251 - the model takes real time
        if "ends" in kinds:
            os._exit(3)
        if "raises" in kinds:
            raise ValueError(xs[kinds.index("raises")])
        answers = [LookupError(x) if kind == "entry" else answer(x) for x, kind in zip(xs, kinds, strict=True)]
        note("end", xs)
        return answers

    return app


app = make_app(Site.from_environ())
