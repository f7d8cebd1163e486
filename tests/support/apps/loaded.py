"""A batch task that loads its model, and tells in which process, on which device and when."""

from __future__ import annotations

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site


def make_app(site: Site) -> Celery:
    """An app with one task that has a setup."""
    app = site.celery("loaded")
    journal = Journal(site)

    class Double(BatchTask):
        name = "loaded.double"

        def setup(self) -> None:
            journal.record("setup", device=self.device)
            self.factor = 2

        def run(self, xs: list[int]) -> list[int]:
            journal.record("run", items=xs)
            return [self.factor * x for x in xs]

    app.register_task(Double())
    return app


app = make_app(Site.from_environ())
