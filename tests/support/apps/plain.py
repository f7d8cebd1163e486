"""Plain Celery tasks: what the helpers are tested with, and the other half of every comparison."""

from __future__ import annotations

from celery import Celery

from tests.support.journal import Journal
from tests.support.site import Site


def make_app(site: Site) -> Celery:
    """An app with one task that answers and one that waits at the gate."""
    app = site.celery("plain")
    journal = Journal(site)

    @app.task(name="plain.add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task(name="plain.double_when_open", acks_late=True)
    def double_when_open(x: int) -> int:
        journal.record("run", items=[x])
        journal.pass_gate()
        return 2 * x

    return app


app = make_app(Site.from_environ())
