"""A user's function as a target of calls, and its answers as columns. Imported only where operators run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from tidegate.formats.columns import make_column
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.calls.caller import CallsFailed, CallTarget
from tidegate.operators.user_values import RecordConverter, WrongValue, values_of
from tidegate.user_code.failure import describe_failure, name_error, show_value
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
    names = [name for name, _ in columns]

    def rows(frame: pl.DataFrame) -> Sequence[object]:
        values = zip(*(values_of(frame[name], kind) for name, kind in columns), strict=True)
        return [dict(zip(names, row, strict=True)) for row in values]

    return rows


class DictDecoder:
    """Decodes dicts from a user's code. Every declared column must be present; all others are ignored."""

    def __init__(self, declared: Columns, output: Columns, what: str) -> None:
        """`what` names the function in messages."""
        self._names = [name for name, _ in declared]
        self._what = what
        remedy = "return a value of that type, or change `output`"
        self._converter = RecordConverter(tuple(declared), f"the answer of {what}", remedy)
        self._output = [(name, kind, attrgetter(f"f{self._names.index(name)}")) for name, kind in output]

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones. None is a row of NULLs."""
        import polars as pl

        records: list[Any] = []
        failures: list[RecordFailure] = []
        for row, answer in enumerate(answers):
            try:
                records.append(None if answer is None else self._convert(answer))
            except WrongValue as error:
                failures.append(RecordFailure(row, FailureKind.WRONG_TYPE, str(error)))
        made = [
            make_column(name, kind, [None if record is None else read(record) for record in records])
            for name, kind, read in self._output
        ]
        return Decoded(pl.DataFrame(made), failures)

    def _convert(self, answer: object) -> Any:
        """Returns the record of an answer. Raises WrongValue, also for what the user's object raises."""
        if not isinstance(answer, Mapping):
            raise WrongValue(f"{self._what} returned {show_value(answer)}: return a dict, or None for NULLs")
        try:
            declared = {name: answer[name] for name in self._names if name in answer}
        except Exception as error:
            shown = show_value(answer)
            raise WrongValue(f"{self._what} returned {shown}, which cannot be read: {name_error(error)}") from error
        return self._converter.convert(declared)
