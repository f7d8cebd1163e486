"""One batch task alone, whose options come from the settings: its prefetch is as small as can be."""

from __future__ import annotations

from celery import Celery

from celery_batching import BatchTask
from tests.support.apps.forming import gated_double
from tests.support.journal import Journal
from tests.support.site import Site


def make_app(site: Site) -> Celery:
    """An app with one task that waits at the gate and doubles numbers."""
    app = site.celery("single")
    app.task(base=BatchTask, bind=True, name="single.double")(gated_double(Journal(site)))
    return app


app = make_app(Site.from_environ())
