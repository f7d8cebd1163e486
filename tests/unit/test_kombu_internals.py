"""A kombu of another version may lack what the transport rests on: then the worker says so, and does without."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from celery_batching.consumer import connection
from celery_batching.transport import _kombu


def test_the_installed_kombu_has_all_names() -> None:
    """Nothing is missing in the versions that are supported."""
    assert [] == _kombu.missing_names()


def test_a_missing_name_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a class, or the class itself."""
    monkeypatch.delattr(_kombu.kombu_redis.MultiChannelPoller, "on_poll_start")
    assert ["MultiChannelPoller.on_poll_start"] == _kombu.missing_names()
    monkeypatch.delattr(_kombu.kombu_redis, "MultiChannelPoller")
    assert ["MultiChannelPoller.on_poll_start"] == _kombu.missing_names()


def test_without_them_the_worker_takes_the_general_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says what is missing and what that means; the consumer is left as it is."""
    monkeypatch.setattr(connection, "missing_names", lambda: ["Channel._brpop_start"])
    consumer: Any = SimpleNamespace(hostname="w@h", connection_for_read="kombu's own")
    with caplog.at_level(logging.WARNING):
        connection.lease_connections(consumer, 10.0, nullcontext)
    assert "kombu's own" == consumer.connection_for_read
    (text,) = [record.getMessage() for record in caplog.records if record.name == connection.__name__]
    assert "has no Channel._brpop_start" in text
    assert "without a lease" in text
