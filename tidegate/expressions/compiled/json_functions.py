"""Functions of JSON text, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.json_text import Malformed, Members, Number, TooDeep, read_json, write_json
from tidegate.expressions.compiled.json_values import NoValue, converter, plain_text, writer
from tidegate.expressions.compiled.rowwise import RowFailed, by_row, text_within_limit, within_limit
from tidegate.expressions.expression import Call
from tidegate.expressions.json_paths import Path, derive_path
from tidegate.formats.failures import FailureKind

_READING = (FailureKind.TOO_DEEP, FailureKind.RESULT_TOO_LARGE)


def _read(text: str, *, controls: bool = False, constants: bool = False) -> Any:
    """Reads the first value in a text. Raises Malformed, and RowFailed if the text is nested too deeply."""
    try:
        return read_json(text, controls=controls, constants=constants)
    except TooDeep:
        raise RowFailed(FailureKind.TOO_DEEP) from None


@compiles("get_json_object")
def _get(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    path = derive_path(str(arguments[1].constant))

    def each(text: str) -> str | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        found = _followed(value, path)
        if isinstance(found, str) and not isinstance(found, Number) and found != plain_text(found):
            return None  # an unpaired surrogate, which cannot be written
        text_within_limit(found or "")
        return found

    return by_row(call, arguments[:1], each, *_READING)


def _followed(value: Any, path: Path) -> str | None:
    """Returns the text at a path. Of members with the same name, the first in which the path finds a value counts."""
    if not path:
        return value if isinstance(value, str) and not isinstance(value, Number) else write_json(value)
    step, *rest = path
    if isinstance(step, int):
        is_array = isinstance(value, list) and not isinstance(value, Members)
        return _followed(value[step], tuple(rest)) if is_array and step < len(value) else None
    if not isinstance(value, Members):
        return None
    found = (_followed(one, tuple(rest)) for name, one in value if name == step and one is not None)
    return next((text for text in found if text is not None), None)


@compiles("from_json")
def _from(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    kind = call.type
    convert = converter(kind)
    nothing = dict.fromkeys([name for name, _ in kind.fields]) if kind.kind == "struct" else None
    of_objects = kind.kind == "array" and kind.element is not None and kind.element.kind == "struct"

    def each(text: str) -> Any:
        if not text.strip(" \t\n\r"):
            return None
        try:
            value = _read(text, constants=True)
            if value is None:
                return nothing
            return convert([value] if of_objects and isinstance(value, Members) else value)
        except (Malformed, NoValue):
            return nothing

    return by_row(call, arguments, each, *_READING, FailureKind.DUPLICATED_MAP_KEY, FailureKind.DATETIME_OVERFLOW)


@compiles("to_json")
def _to(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    write = writer(arguments[0].type)

    def each(value: Any) -> str:
        text = write(value)
        within_limit(len(text.encode()))
        return text

    return by_row(call, arguments, each, FailureKind.RESULT_TOO_LARGE, FailureKind.DATETIME_OVERFLOW)


@compiles("json_array_length")
def _length(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> int | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        return len(value) if isinstance(value, list) and not isinstance(value, Members) else None

    return by_row(call, arguments, each, FailureKind.TOO_DEEP)


@compiles("json_object_keys")
def _keys(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> list[str] | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        return [plain_text(name) for name, _ in value] if isinstance(value, Members) else None

    return by_row(call, arguments, each, FailureKind.TOO_DEEP)
