"""The garbage collector is held back where nothing is to be found, and never from the model."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from celery_batching.collector import collector_paused


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """As Python starts, before and after each test."""
    gc.enable()
    yield
    gc.enable()


def test_it_is_held_back_inside_the_block() -> None:
    """Also when it is entered again."""
    with collector_paused:
        assert not gc.isenabled()
        with collector_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_model_has_it_as_usual() -> None:
    """On the solo pool the model runs while messages are read."""
    with collector_paused:
        with collector_paused.lifted():
            assert gc.isenabled()
            with collector_paused:
                pass
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_model_may_have_its_own_mind() -> None:
    """What it sets stays, whether it was held back around it or not."""
    with collector_paused, collector_paused.lifted():
        gc.disable()
    assert not gc.isenabled()
    gc.enable()
    with collector_paused.lifted():
        gc.disable()
    assert not gc.isenabled()
    with collector_paused, collector_paused.lifted():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_an_error_of_the_model_changes_nothing() -> None:
    """The pause goes on, and ends."""
    with collector_paused:
        with pytest.raises(ZeroDivisionError), collector_paused.lifted():
            raise ZeroDivisionError
        assert not gc.isenabled()
    assert gc.isenabled()


def test_other_threads_leave_it_alone() -> None:
    """Their pauses could add up to one without end."""
    seen = []

    def look() -> None:
        with collector_paused:
            seen.append(gc.isenabled())
            with collector_paused.lifted():
                seen.append(gc.isenabled())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert [True, True] == seen
