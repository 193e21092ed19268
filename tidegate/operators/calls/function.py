"""A user's function as a target of calls, and its answers as columns: strictly and row by row, by the rules of JSON
sources (`formats/kinds/json/reader.py`). Imported only where operators run.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from typing_extensions import override

from tidegate.datatypes import DataType, holds_kind
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder
from tidegate.formats.kinds.json.types import convert
from tidegate.operators.calls.caller import CallsFailed, CallTarget
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


_PLACE: Final = re.compile(r"(?:at|in) `\$\.([^.`\[]+)")


class DictDecoder:
    """Decodes dicts from a user's code. Every declared column must be present; all others are ignored."""

    def __init__(self, declared: Columns, output: Columns, what: str) -> None:
        """`what` names the function in messages."""
        self._declared = dict(declared)
        self._what = what
        self._decoder = JsonDecoder(declared, output, _convert)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones. None is a row of NULLs."""
        wrong: dict[int, str] = {}
        values = [self._select(row, answer, wrong) for row, answer in enumerate(answers)]
        try:
            decoded = self._decoder.decode_values(values)  # type: ignore[arg-type]  # whatever the decoder converts
        except Exception:  # noqa: BLE001  # it concerns a whole column: rows are then checked one by one
            for row, value in enumerate(values):
                reason = self._refuse(value)
                if reason:
                    values[row], wrong[row] = {}, reason
            decoded = self._decoder.decode_values(values)  # type: ignore[arg-type]  # as above
        return self._explained(decoded, values, wrong)

    def _select(self, row: int, answer: object, wrong: dict[int, str]) -> dict[str, object]:
        """Returns the declared columns of an answer. An exception from reading the user's object fails its row."""
        if answer is None:
            return {}
        if not isinstance(answer, Mapping):
            wrong[row] = f"{self._what} returned {show_value(answer)}: return a dict, or None for NULLs"
            return {}
        try:
            value = {name: answer[name] for name in self._declared if name in answer}
        except Exception as error:  # noqa: BLE001  # as above
            wrong[row] = f"{self._what} returned {show_value(answer)}, which cannot be read: {name_error(error)}"
            return {}
        if len(value) < len(self._declared):
            names = ", ".join(f"`{name}`" for name in self._declared if name not in value)
            wrong[row] = f"{self._what} returned a dict without {names}: return every column of `output`, None for NULL"
            return {}
        return value

    def _refuse(self, value: Mapping[str, object]) -> str:
        """Returns why a row cannot be converted to columns; empty if it can."""
        try:
            self._decoder.decode_values([value])  # type: ignore[list-item]  # as above
        except UnicodeEncodeError:  # for a lone surrogate, which `json.loads` makes of half an emoji
            return (
                f"{self._what} returned a string with a lone surrogate, which is not valid text: {show_value(value)}; "
                f"return valid text, for instance text.encode('utf-8', 'replace').decode()"
            )
        except Exception as error:  # noqa: BLE001  # from the user's objects, such as a time zone
            return (
                f"{self._what} returned {show_value(value)}, which cannot be converted to columns: {name_error(error)}"
            )
        return ""

    def _explained(self, decoded: Decoded, values: Sequence[Mapping[str, object]], wrong: Mapping[int, str]) -> Decoded:
        """Returns the result with the column, the value and a remedy in each failure."""
        failures = [self._explain(one, values[one.row]) for one in decoded.failures]
        frame = decoded.frame
        if wrong:
            failed = {one.row for one in failures}
            kept = [row for row in range(len(values)) if row not in failed]
            frame = frame[[place for place, row in enumerate(kept) if row not in wrong]]
            failures += [RecordFailure(row, FailureKind.WRONG_TYPE, message) for row, message in wrong.items()]
            failures.sort(key=lambda one: one.row)
        return Decoded(frame, failures)

    def _explain(self, failure: RecordFailure, value: Mapping[str, object]) -> RecordFailure:
        place = _PLACE.search(failure.message)
        name = "" if place is None else place[1]
        kind: DataType | None = self._declared.get(name)
        if kind is None:
            return RecordFailure(
                failure.row, failure.kind, f"{self._what} returned {show_value(value)}: {failure.message}"
            )
        message = (
            f"{self._what} returned {show_value(value.get(name))} for `{name}`, which is {kind}: return a value of "
            f"that type, or change `output`"
        )
        return RecordFailure(failure.row, failure.kind, f"{message} ({failure.message})")


def _convert(record: type[msgspec.Struct]) -> Decode:
    def decode(value: object) -> object:
        try:
            return msgspec.convert(value, record, dec_hook=convert)
        except (msgspec.ValidationError, RecursionError):
            raise
        except Exception as error:  # from a nested value of the user's: its row is bad
            raise msgspec.ValidationError(name_error(error)) from error

    return decode
