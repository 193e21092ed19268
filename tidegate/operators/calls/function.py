"""A user's function as a target of calls. Imported only where operators run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from tidegate.datatypes import DataType, holds_kind
from tidegate.formats.contract import Columns
from tidegate.operators.calls.caller import CallsFailed, CallTarget
from tidegate.user_code.failure import describe_failure
from tidegate.user_code.modules import load

if TYPE_CHECKING:
    import polars as pl


class FunctionTarget(CallTarget):
    """A user's function. `reference` is `module:function`, or a class of callable objects with `open` and `close`."""

    def __init__(self, reference: str) -> None:
        """Raises UserCodeProblem, CallsFailed."""
        found = load(reference)
        self._has_life = isinstance(found, type)
        try:
            self._object: Any = found() if isinstance(found, type) else found
        except Exception as error:
            raise CallsFailed(f"{reference} cannot be instantiated: {describe_failure(error)}") from error
        self._ask = cast("Callable[[object], Awaitable[object]]", self._object)

    @override
    async def open(self) -> None:
        if self._has_life and hasattr(self._object, "open"):
            await self._object.open()

    @override
    def ask(self, request: object) -> Awaitable[object]:
        """Calls the function with a copy of the row for each attempt, because the function may change it."""
        assert isinstance(request, dict)
        return self._ask(_copy(request))

    @override
    async def close(self) -> None:
        if self._has_life and hasattr(self._object, "close"):
            await self._object.close()


def _copy(value: Any) -> Any:
    """Copies dicts and lists; everything else in a row is immutable."""
    if isinstance(value, dict):
        return {name: _copy(one) if isinstance(one, dict | list) else one for name, one in value.items()}
    return list(map(_copy, value)) if isinstance(value, list) else value


def rows_of(columns: Columns) -> Callable[[pl.DataFrame], Sequence[object]]:
    """Returns a function that converts rows to dicts with these columns."""
    wanted = [name for name, _ in columns]
    converters = {name: convert for name, kind in columns if (convert := _converter(kind)) is not None}
    if not converters:
        return lambda frame: frame.select(wanted).to_dicts()

    def rows(frame: pl.DataFrame) -> Sequence[object]:
        found = frame.select(wanted).to_dicts()
        for row in found:
            for name, convert in converters.items():
                row[name] = convert(row[name])
        return found

    return rows


def _converter(kind: DataType) -> Callable[[Any], Any] | None:
    """Returns a function that converts maps to dicts in the values from Polars; None if there are no maps."""
    if not holds_kind(kind, ("map",)):
        return None
    if kind.element is not None:
        below = _converter(kind.element) or _itself
        if kind.kind == "map":
            return lambda value: None if value is None else {one["key"]: below(one["value"]) for one in value}
        return lambda value: None if value is None else list(map(below, value))
    parts = {name: _converter(part) or _itself for name, part in kind.fields}
    return lambda value: None if value is None else {name: parts[name](one) for name, one in value.items()}


def _itself(value: Any) -> Any:
    return value
