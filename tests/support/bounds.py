"""Bounds of the package that a worker of a test has otherwise, so that the pace of the machine decides nothing."""

from __future__ import annotations

import os

from celery_batching.consumer import ahead
from celery_batching.core import items

#: The seconds after which an item goes before better ones, in the environment of a worker.
AGE_BOUND = "BATCHING_TEST_AGE_BOUND"

#: The seconds that a run takes at least during which the next batch is got ready.
LONG_RUN = "BATCHING_TEST_LONG_RUN"

#: The environment of a worker in which nothing becomes old while a test lasts.
NEVER_OLD = {AGE_BOUND: "600"}

#: The seconds that it takes at most for a batch to be sent ahead behind the next.
SHORT_RUN = "BATCHING_TEST_SHORT_RUN"

#: The environment of a worker in which both hold for every run, also one that a test keeps at its gate.
ALL_LONG = {LONG_RUN: "0", SHORT_RUN: "600"}


def take_bounds() -> None:
    """Take what the environment names, in the worker."""
    if AGE_BOUND in os.environ:
        items.AGE_BOUND_S = float(os.environ[AGE_BOUND])
    if LONG_RUN in os.environ:
        ahead.LONG_RUN_S = float(os.environ[LONG_RUN])
    if SHORT_RUN in os.environ:
        ahead.SHORT_RUN_S = float(os.environ[SHORT_RUN])
