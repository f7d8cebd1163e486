"""columns: one caller's arguments in, a list per parameter out."""

from __future__ import annotations

from typing import Any

import pytest

from celery_batching import BatchTask, SignatureError
from celery_batching.columns import Columns


def stacked(run: Any, *calls: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[list[list[Any]], dict[str, list[Any]]]:
    columns = Columns(run, "proj.f")
    return columns.stack([columns.row(args, kwargs) for args, kwargs in calls])


def test_each_parameter_is_a_column_with_defaults_filled_in() -> None:
    """A caller who leaves an argument out gets the default in its own entry."""

    def run(image: Any, threshold: Any = 0.5, *, top: Any = 3) -> None: ...

    args, kwargs = stacked(run, (("a",), {}), (("b", 0.7), {}), ((), {"image": "c", "top": 9}))

    assert [["a", "b", "c"], [0.5, 0.7, 0.5]] == args
    assert {"top": [3, 3, 9]} == kwargs


def test_positional_only_parameters_are_passed_by_position() -> None:
    """A ``/`` in the signature is respected."""

    def run(x: Any, /, y: Any) -> None: ...

    args, kwargs = stacked(run, ((1, 2), {}), ((3,), {"y": 4}))

    assert ([[1, 3], [2, 4]], {}) == (args, kwargs)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"y": 2}), ((1,), {"x": 2})])
def test_arguments_that_do_not_fit_are_refused(args: Any, kwargs: Any) -> None:
    """A wrong call raises TypeError and names the task."""

    def run(x: Any) -> None: ...

    with pytest.raises(TypeError, match="proj.f"):
        Columns(run, "proj.f").row(args, kwargs)


def test_variadic_parameters_are_refused_where_the_class_is_defined() -> None:
    """``*args`` and ``**kwargs`` have no column; the declaration names them."""
    with pytest.raises(SignatureError, match=r"Embed\.run\(\) must name its parameters.*\*texts"):

        class Embed(BatchTask):
            def run(self, *texts: Any) -> Any:
                return texts

    with pytest.raises(SignatureError, match=r"\*\*options"):

        class Other(BatchTask):
            def run(self, texts: Any, **options: Any) -> Any:
                return texts


def test_a_run_without_parameters_is_refused() -> None:
    """There must be a list of items to get."""
    with pytest.raises(SignatureError, match="at least one parameter"):

        class Embed(BatchTask):
            def run(self) -> Any:
                return []


def test_an_asynchronous_run_is_refused() -> None:
    """A coroutine would never be awaited in a pool process."""
    with pytest.raises(SignatureError, match="asynchronous"):

        class Embed(BatchTask):
            async def run(self, texts: Any) -> Any:
                return texts


def test_a_static_run_has_no_self() -> None:
    """``run`` may be a static method, as Celery makes it of a decorated function."""

    class Embed(BatchTask):
        @staticmethod
        def run(texts: Any) -> Any:
            return texts

    assert {"texts": 1} == Embed.columns.row((1,), {})
