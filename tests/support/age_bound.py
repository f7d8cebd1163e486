"""A longer age bound for the workers of tests in which better items overtake others: sending them may take a while."""

from __future__ import annotations

import os

from celery_batching.core import items

#: The seconds after which an item goes before better ones, in the environment of a worker.
VARIABLE = "BATCHING_TEST_AGE_BOUND"

#: The environment of a worker in which nothing becomes old while a test lasts.
NEVER_OLD = {VARIABLE: "600"}


def take_age_bound() -> None:
    """Take what the environment names, in the worker."""
    if VARIABLE in os.environ:
        items.AGE_BOUND_S = float(os.environ[VARIABLE])
