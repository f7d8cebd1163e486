"""Between one caller's arguments and the columns of ``run``: a row per item, a list per parameter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .errors import SignatureError

__all__ = ["Columns"]

_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class Columns:
    """The parameters of a ``run`` function, each of them filled with a list.

    Args:
        run: the bound function, ``self`` not among its parameters.
        owner: how messages call the task.

    Raises:
        SignatureError: ``run`` has no parameter, or ``*args`` or ``**kwargs``.
    """

    def __init__(self, run: Callable[..., Any], owner: str) -> None:
        self._owner = owner
        self._signature = inspect.signature(run)
        parameters = self._signature.parameters.values()
        for parameter in parameters:
            if parameter.kind in _VARIADIC:
                raise SignatureError(
                    f"{owner}.run() must name its parameters, each becomes a list with one entry "
                    f"per item; it has {_VARIADIC[parameter.kind]}{parameter.name}"
                )
        if not parameters:
            raise SignatureError(f"{owner}.run() must take at least one parameter: the list of its items")
        self._positional = [p.name for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        self._keyword_only = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        self._count = len(self._signature.parameters)

    def row(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """One caller's arguments by parameter name, defaults filled in.

        Raises:
            TypeError: the arguments do not fit the signature.
        """
        if len(args) == self._count and not kwargs and not self._keyword_only:
            return dict(zip(self._positional, args, strict=True))  # most calls, and ten times as fast
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise TypeError(f"{self._owner}() {exc}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def stack(self, rows: Sequence[dict[str, Any]]) -> tuple[list[list[Any]], dict[str, list[Any]]]:
        """The rows of a batch as positional and keyword arguments of ``run``."""
        args = [[row[name] for row in rows] for name in self._positional]
        kwargs = {name: [row[name] for row in rows] for name in self._keyword_only}
        return args, kwargs
