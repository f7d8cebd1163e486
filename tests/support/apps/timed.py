"""Two batch tasks whose model takes time, as a real one does, whatever the size of the batch."""

from __future__ import annotations

import time

from celery import Celery

from celery_batching import BatchTask
from tests.support.journal import Journal
from tests.support.site import Site


def make_app(site: Site) -> Celery:
    """An app whose model takes `model_s` seconds (a setting of the site) and doubles numbers."""
    app = site.celery("timed", model_s=0.05)
    journal = Journal(site)

    def run(self: BatchTask, xs: list[int]) -> list[int]:
        journal.pass_gate()
        time.sleep(self.app.conf.model_s)  # noqa: TID251 - the model under test takes real time
        return [2 * x for x in xs]

    for name in ("first", "second"):
        app.task(base=BatchTask, bind=True, name=f"timed.{name}")(run)
    return app


app = make_app(Site.from_environ())
