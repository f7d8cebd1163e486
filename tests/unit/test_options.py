"""options: where values come from, and which are refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from celery_batching import BatchOptions, BatchTask, OptionError
from celery_batching.options import WorkerOptions, option_names, refuse_misspelt

BAD = [
    ("max_batch_size", 0),
    ("max_batch_size", -3),
    ("max_batch_size", 2.0),
    ("max_batch_size", "8"),
    ("max_batch_size", True),
    ("max_batch_size", math.nan),
    ("max_wait", -0.1),
    ("max_wait", math.nan),
    ("max_wait", math.inf),
    ("max_wait", "soon"),
    ("max_wait", True),
    ("on_error", "splitt"),
    ("on_error", 1),
    ("on_error", ["split"]),
]


def test_defaults() -> None:
    """Without any wish a batch takes 32 items, waits for nobody, and is split when it raises."""
    assert BatchOptions(max_batch_size=32, max_wait=0.0, on_error="split") == BatchOptions.resolve({}, {}, {})


def test_declaration_goes_before_environment_before_settings() -> None:
    """Each option is taken from the first place that has it."""
    declared = {"max_batch_size": 1, "max_wait": None}
    environ = {"CELERY_BATCHING_MAX_BATCH_SIZE": "2", "CELERY_BATCHING_MAX_WAIT": "0.2"}
    settings = {"batching_max_batch_size": 3, "batching_max_wait": 0.3, "batching_on_error": "fail"}

    assert BatchOptions(max_batch_size=1, max_wait=0.2, on_error="fail") == BatchOptions.resolve(
        declared, environ, settings
    )


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_in_a_declaration(name: str, value: Any) -> None:
    """A bad value raises where the class is defined, naming the class, the option and the value."""
    with pytest.raises(OptionError) as caught:
        type("Embed", (BatchTask,), {name: value, "run": lambda self, xs: xs})

    assert f"Embed.{name}" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_in_the_settings(name: str, value: Any) -> None:
    """A bad setting raises with its full name and the value; text is not taken for a number."""
    with pytest.raises(OptionError) as caught:
        BatchOptions.resolve({}, {}, {f"batching_{name}": value})

    assert f"batching_{name}" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("max_batch_size", "0"), ("max_batch_size", "2.5"), ("max_batch_size", ""), ("max_wait", "nan"), ("on_error", "")],
)
def test_a_bad_value_is_refused_in_the_environment(name: str, text: str) -> None:
    """A bad variable raises with its full name and the text that stands there."""
    variable = f"CELERY_BATCHING_{name.upper()}"
    with pytest.raises(OptionError) as caught:
        BatchOptions.resolve({}, {variable: text}, {})

    assert variable in str(caught.value)
    assert str(caught.value).endswith((repr(text), text))


@pytest.mark.parametrize("wrong", ["max_batchsize", "batch_size", "max_batch_siz", "maxwait", "on_eror", "max_waits"])
def test_a_misspelt_option_is_refused_with_the_right_name(wrong: str) -> None:
    """A name that looks like an option's is refused in every place, and the right one is named."""
    with pytest.raises(OptionError, match="did you mean '(max_batch_size|max_wait|on_error)'"):
        type("Embed", (BatchTask,), {wrong: 1, "run": lambda self, xs: xs})
    with pytest.raises(OptionError, match="did you mean 'batching_"):
        BatchOptions.resolve({}, {}, {f"batching_{wrong}": 1})
    with pytest.raises(OptionError, match="did you mean 'CELERY_BATCHING_"):
        BatchOptions.resolve({}, {f"CELERY_BATCHING_{wrong.upper()}": "1"}, {})


@pytest.mark.parametrize("free", ["model_name", "threshold", "max_retries", "retry_backoff", "rate_limit", "weights"])
def test_other_attributes_stay_free(free: str) -> None:
    """Names that are no option's, Celery's own among them, may be set as on any task."""
    refuse_misspelt([] if hasattr(BatchTask, free) else [free], "", "option")
    type("Embed", (BatchTask,), {free: 1, "run": lambda self, xs: xs})


def test_redis_url_of_the_example_is_no_misspelling() -> None:
    """Other variables with our prefix, such as CELERY_BATCHING_REDIS_URL, are left alone."""
    BatchOptions.resolve({}, {"CELERY_BATCHING_REDIS_URL": "redis://"}, {})


def test_options_are_frozen() -> None:
    """A resolved option cannot be changed behind the policy's back."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        BatchOptions().max_wait = 1.0  # type: ignore[misc]


def test_every_option_is_an_attribute_of_the_task() -> None:
    """What can be set in settings can be declared on a class."""
    assert all(hasattr(BatchTask, name) for name in option_names())


def test_the_lease_of_a_worker_comes_from_environment_or_settings() -> None:
    """The variable goes before the setting, and without both it is 10 s."""
    settings = {"batching_lease": 3}

    assert WorkerOptions(lease=10.0) == WorkerOptions.resolve({}, {}, {})
    assert WorkerOptions(lease=3.0) == WorkerOptions.resolve({}, {}, settings)
    assert WorkerOptions(lease=1.5) == WorkerOptions.resolve({}, {"CELERY_BATCHING_LEASE": "1.5"}, settings)


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_a_bad_number_of_restarts_is_refused(value: Any) -> None:
    """Less than one process, or no whole number, is refused in the same way."""
    with pytest.raises(OptionError, match="max_restarts_per_minute must be a whole number of processes, 1 or more"):
        WorkerOptions.resolve({}, {}, {"batching_max_restarts_per_minute": value})


@pytest.mark.parametrize("value", [0, 0.5, -1, "10", True, math.nan, math.inf])
def test_a_bad_lease_is_refused(value: Any) -> None:
    """A lease below a second, or none at all, is refused with its name, the value and what is wanted."""
    with pytest.raises(OptionError, match="batching_lease must be a number of seconds, 1 or more; got"):
        WorkerOptions.resolve({}, {}, {"batching_lease": value})
    with pytest.raises(OptionError, match="CELERY_BATCHING_LEASE.*'soon'"):
        WorkerOptions.resolve({}, {"CELERY_BATCHING_LEASE": "soon"}, {})


def test_a_misspelt_option_of_a_worker_is_refused() -> None:
    """Whoever reads the settings, of a task or of the worker, knows the names of both."""
    for options in (BatchOptions, WorkerOptions):
        with pytest.raises(OptionError, match="did you mean 'batching_lease'"):
            options.resolve({}, {}, {"batching_leases": 5})
        with pytest.raises(OptionError, match="did you mean 'CELERY_BATCHING_LEASE'"):
            options.resolve({}, {"CELERY_BATCHING_LEASES": "5"}, {})
        options.resolve({}, {}, {"batching_lease": 5, "batching_max_wait": 1})
