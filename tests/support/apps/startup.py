"""A batch task whose start goes wrong in the way that the environment of its worker names."""

from __future__ import annotations

import os
import sys
import time
import types
from importlib.machinery import ModuleSpec
from typing import Any

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site

#: Names what `setup` does: one of the keys in `SETUPS`.
SETUP = "BATCHING_TEST_SETUP"

#: Present: a torch that has initialised CUDA is loaded in this process.
FAKE_CUDA = "BATCHING_TEST_FAKE_CUDA"

#: What goes wrong in the setup that raises.
TROUBLE = "no such file: weights.bin"

#: Seconds until a setup that "exits late": Celery's own check of new processes is over by then.
LATE_S = 1.5

#: Seconds for a slow setup: longer than Celery's default of `worker_proc_alive_timeout`.
SLOW_S = 5.0


def raise_always(journal: Journal) -> None:
    raise FileNotFoundError(TROUBLE)


def raise_in_a_replacement(journal: Journal) -> None:
    if {entry.pid for entry in journal.entries("setup")} != {os.getpid()}:
        raise FileNotFoundError(TROUBLE)


def die_late(journal: Journal) -> None:
    time.sleep(LATE_S)  # noqa: TID251 - a model that fails takes its time before
    os._exit(7)


def die_in_a_replacement(journal: Journal) -> None:
    if {entry.pid for entry in journal.entries("setup")} != {os.getpid()}:
        os._exit(7)


def exit_late(journal: Journal) -> None:
    time.sleep(LATE_S)  # noqa: TID251 - a model that fails takes its time before
    sys.exit(TROUBLE)


SETUPS = {
    "raises": raise_always,
    "raises in a replacement": raise_in_a_replacement,
    "exits": lambda journal: sys.exit(TROUBLE),
    "exits late": exit_late,
    "dies late": die_late,
    "dies in a replacement": die_in_a_replacement,
    "is slow": lambda journal: time.sleep(SLOW_S),  # noqa: TID251 - what is tested is a timeout of Celery's own
    "works": lambda journal: None,
}


def load_fake_torch() -> None:
    """What `import torch; torch.zeros(1).cuda()` leaves behind, without a GPU."""
    torch: Any = types.ModuleType("torch")
    torch.__spec__ = ModuleSpec("torch", None)
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, is_available=lambda: True, device_count=lambda: 2)
    sys.modules["torch"] = torch


def make_app(site: Site) -> Celery:
    """An app with one batch task and one plain task."""
    app = site.celery("startup")
    journal = Journal(site)

    class Embed(BatchTask):
        name = "startup.embed"
        max_batch_size = 4

        def setup(self) -> None:
            journal.record("setup")
            SETUPS[os.environ.get(SETUP, "works")](journal)

        def run(self, xs: list[int]) -> list[Any]:
            return [[2 * x, self.device] for x in xs]

    app.register_task(Embed())

    @app.task(name="startup.plain")
    def plain(x: int) -> int:
        return x

    return app


if os.environ.get(FAKE_CUDA):
    load_fake_torch()

app = make_app(Site.from_environ())
