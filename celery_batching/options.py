"""The options of a batch task and those of a worker: frozen dataclasses, checked wherever a value comes from.

Each option is looked up in this order: the declaration of the task (for its own), the environment
(``CELERY_BATCHING_MAX_WAIT``), the app's settings (``batching_max_wait``), the default.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from .errors import OptionError

__all__ = ["BatchOptions", "WorkerOptions"]

OptionsT = TypeVar("OptionsT", bound="_Options")

ENVIRONMENT_PREFIX = "CELERY_BATCHING_"
SETTING_PREFIX = "batching_"

#: How alike (0 to 1, ``difflib``'s ratio) a name must be to an option's to be taken for a misspelling.
MISSPELT_LIKENESS = 0.85

#: Less alike, but hardly meant for anything else.
_MEANT = {"batch_size": "max_batch_size", "max_batch": "max_batch_size", "max_wait_ms": "max_wait"}


def _whole_number(wanted: str) -> Callable[[str, object], int]:
    def check(source: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise OptionError(f"{source} must be {wanted}, 1 or more; got {value!r}")
        return int(value)

    return check


def _number_of_seconds(least: int) -> Callable[[str, object], float]:
    def check(source: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= float(value) < math.inf:
            raise OptionError(f"{source} must be a number of seconds, {least} or more; got {value!r}")
        return float(value)

    return check


def _flag(source: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{source} must be True or False; got {value!r}")
    return value


def _yes_or_no(text: str) -> bool:
    words = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
    if text.strip().lower() not in words:
        raise ValueError(text)
    return words[text.strip().lower()]


def _on_error(source: str, value: object) -> str:
    if not isinstance(value, str) or value not in ("split", "fail"):
        raise OptionError(f"{source} must be 'split' or 'fail'; got {value!r}")
    return value


def _classes(source: str, value: object) -> tuple[type[BaseException] | str, ...]:
    entries = (value,) if isinstance(value, (str, type)) else value
    if not isinstance(entries, Iterable):
        entries = (entries,)
    checked = tuple(entries)
    for entry in checked:
        is_class = isinstance(entry, type) and issubclass(entry, BaseException)
        if not is_class and not (isinstance(entry, str) and "." in entry.strip(".")):
            raise OptionError(
                f"{source} must be exception classes, or their names with the module before, "
                f"such as 'jaxlib.xla_extension.XlaRuntimeError'; got {entry!r}"
            )
    return checked


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _option(default: Any, check: Callable[[str, object], Any], parse: Callable[[str], Any]) -> Any:
    return dataclasses.field(default=default, metadata={"check": check, "parse": parse})


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Options:
    """What every set of options does: check its values, find them."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @classmethod
    def resolve(  # noqa: PYI019 - typing.Self needs Python 3.11
        cls: type[OptionsT],
        declared: Mapping[str, object],
        environ: Mapping[str, str],
        settings: Mapping[str, object],
    ) -> OptionsT:
        """Merge the three sources; ``None`` in a declaration or setting means "not given"."""
        names = [*option_names(), *worker_option_names()]
        refuse_misspelt(environ, ENVIRONMENT_PREFIX, "environment variable", names)
        refuse_misspelt(settings, SETTING_PREFIX, "setting", names)
        # As settings with the namespace CELERY read.
        refuse_misspelt(settings, ENVIRONMENT_PREFIX, "setting", names)
        found: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            value = _find(field, declared, environ, settings)
            if value is not None:
                found[field.name] = value
        return cls(**found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchOptions(_Options):
    """How the items of one task are gathered into batches.

    Attributes:
        max_batch_size: the most items in one batch; a hard cap. Default 32.
        max_wait: seconds the oldest item may wait for company while the worker is free.
            Default 0: never wait, batches gather while the model runs.
        on_error: what to do when ``run`` raises. ``"split"`` (default) halves the batch and
            runs it again until the bad items stand alone, ``"fail"`` fails every item.
        oom_errors: exception classes, or their full names, that mean "out of memory" beside
            torch's and MemoryError: the batch is run again in halves that fit, and the next
            batches are no larger. Default: none.

    Raises:
        OptionError: names the option, the value that came and what was wanted.
    """

    max_batch_size: int = _option(32, _whole_number("a whole number of items"), int)
    max_wait: float = _option(0.0, _number_of_seconds(0), float)
    on_error: str = _option("split", _on_error, str)
    oom_errors: tuple[type[BaseException] | str, ...] = _option((), _classes, _names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerOptions(_Options):
    """What holds for a whole worker: the environment and the settings have a say, no task has.

    Attributes:
        lease: seconds a worker on Redis may stand still before the others take the items it
            holds; a killed worker's are back on the queue soon after. Default 10.
        bulk: whether messages, results and acks of a batch share their round trips where broker or
            backend are Redis. Default True. False leaves them to Celery one by one, and turns the
            lease off, which rests on it.
        max_restarts_per_minute: pool processes that may die within 60 s before the worker ends,
            since each costs a load of the model. Default 60.

    Raises:
        OptionError: names the option, the value that came and what was wanted.
    """

    lease: float = _option(10.0, _number_of_seconds(1), float)
    bulk: bool = _option(True, _flag, _yes_or_no)
    max_restarts_per_minute: int = _option(60, _whole_number("a whole number of processes"), int)


def option_names() -> list[str]:
    """The name of every option, as written in a declaration."""
    return [field.name for field in dataclasses.fields(BatchOptions)]


def worker_option_names() -> list[str]:
    """The name of every option of a worker."""
    return [field.name for field in dataclasses.fields(WorkerOptions)]


def check_declared(owner: str, name: str, value: object) -> None:
    """Check one declared option; ``None`` means "not given" and passes.

    Raises:
        OptionError: naming the owner, the option and the value.
    """
    if value is not None:
        field = next(field for field in dataclasses.fields(BatchOptions) if field.name == name)
        field.metadata["check"](f"{owner}.{name}", value)


def refuse_misspelt(names: Iterable[str], prefix: str, kind: str, options: Sequence[str] | None = None) -> None:
    """Refuse the names behind ``prefix`` that look like one of the options (a task's) but are not.

    Other names stay free: they may belong to another release or to somebody else.

    Raises:
        OptionError: names the right spelling.
    """
    options = option_names() if options is None else options
    for name in names:
        head, bare = name[: len(prefix)], name[len(prefix) :].lower()
        if head.lower() != prefix.lower() or bare in options:
            continue
        alike = difflib.get_close_matches(bare, options, n=1, cutoff=MISSPELT_LIKENESS)
        meant = _MEANT.get(bare, alike[0] if alike else None)
        if meant is not None:
            right = prefix + (meant.upper() if prefix.isupper() else meant)
            raise OptionError(f"unknown {kind} {name!r}; did you mean {right!r}?")


def _find(
    field: dataclasses.Field[Any],
    declared: Mapping[str, object],
    environ: Mapping[str, str],
    settings: Mapping[str, object],
) -> object:
    if declared.get(field.name) is not None:
        return declared[field.name]
    variable = ENVIRONMENT_PREFIX + field.name.upper()
    if variable in environ:
        return _parse(field, variable, environ[variable])
    setting = SETTING_PREFIX + field.name
    value = settings.get(setting)
    return None if value is None else field.metadata["check"](setting, value)


def _parse(field: dataclasses.Field[Any], variable: str, text: str) -> object:
    try:
        value = field.metadata["parse"](text)
    except ValueError:
        value = text  # the check below words the error, with the text as it came
    return field.metadata["check"](variable, value)
