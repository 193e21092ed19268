"""Converts values of a user's code, which are checked, to the plain values of states and columns, and back.

A plain value is what `plain_values` of `formats/columns.py` returns: dates are days, timestamps microseconds, arrays
and structs tuples, maps tuples of pairs. What a value may be follows the rules of JSON sources
(`formats/kinds/json/types.py`).
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, STRING, DataType
from tidegate.formats.kinds.json.types import LOCAL, convert, own_type, read_moment, record_type, rephrase
from tidegate.operators.spec import Columns
from tidegate.user_code.failure import name_error, show_value

if TYPE_CHECKING:
    import polars as pl

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_LOCAL: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # without zone on purpose
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_INTEGERS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_SIMPLE: Final = frozenset({"boolean", "double", "string", *_INTEGERS})
"""Types of columns that msgspec converts without help."""
_PLACE: Final = re.compile(r"(?:at|in) `\$\.([^.`\[]+)")
_FLOAT: Final = struct.Struct("<f")

Convert = Callable[[Any], Any]


class WrongValue(TypeError):
    """A value that does not fit the type that is declared for it."""


# -- to plain values ---------------------------------------------------------------------------------------------------


def micros_of(value: dt.datetime) -> int:
    """Returns an instant as microseconds since 1970. Raises ValueError, also for one without an offset."""
    if value.tzinfo is None:
        raise ValueError("it has no offset: give a datetime in UTC, such as `datetime.now(UTC)`")
    micros = (value - EPOCH) // _MICROSECOND
    if not FIRST_MOMENT <= micros <= LAST_MOMENT:
        raise ValueError("a timestamp in UTC is before the year 1 or after 9999")
    return micros


def _read_instant(value: Any) -> int:
    return micros_of(value if value.__class__ is dt.datetime else read_moment(value))


def _read_local(value: Any) -> int:
    found = value if value.__class__ is dt.datetime and value.tzinfo is None else read_moment(value, LOCAL)
    return (found - _EPOCH_LOCAL) // _MICROSECOND


def _read_date(value: Any) -> int:
    found: dt.date = value if value.__class__ is dt.date else _convert_plain(value, dt.date)
    return found.toordinal() - _EPOCH_DAY


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")  # noqa: TRY004  # msgspec adds the place
    value.encode()  # fails for half a character, such as `json.loads` makes of half an emoji
    return value


def _read_float(value: Any) -> float:
    try:
        found: float = _FLOAT.unpack(_FLOAT.pack(_convert_plain(value, float)))[0]
    except OverflowError as error:
        raise ValueError(f"{value} is out of range") from error
    return found


def _convert_plain(value: Any, kind: type) -> Any:
    """Converts a value. Raises ValueError, to which msgspec adds the place, as it does not to an error of its own."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


_OWN: Final[Mapping[str, type]] = {
    "timestamp": own_type("timestamp", _read_instant),
    "timestamp_ntz": own_type("timestamp_ntz", _read_local),
    "date": own_type("date", _read_date),
    "float": own_type("float", _read_float),
    "string": own_type("string", _read_text),
}


def _plain_of(kind: DataType) -> Convert | None:
    """Returns what makes a plain value of one that msgspec has converted; None if it is plain already."""
    if kind.kind == "map":
        assert kind.element is not None
        below, check = _below(kind.element), _read_text if kind.key == STRING else _itself
        return lambda value: tuple((check(key), below(one)) for key, one in value.items())
    if kind.element is not None:
        inner = _below(kind.element)
        return lambda value: tuple(map(inner, value))
    if kind.kind == "struct":
        return _plain_of_struct([part for _, part in kind.fields])
    return None


def _plain_of_struct(fields: Sequence[DataType]) -> Convert:
    names = [f"f{index}" for index in range(len(fields))]
    if len(names) > 1 and all(_plain_of(part) is None for part in fields):
        return attrgetter(*names)  # a tuple of them, in a third of the time
    parts = [(attrgetter(name), _below(part)) for name, part in zip(names, fields, strict=True)]
    return lambda value: tuple(convert_part(read(value)) for read, convert_part in parts)


def _below(kind: DataType) -> Convert:
    found = _plain_of(kind)
    if found is None:
        return _itself
    return lambda value: None if value is None else found(value)


def _itself(value: Any) -> Any:
    return value


class RecordConverter:
    """Converts mappings with these columns to records with the attributes `f0`, `f1` ..., whose values are plain."""

    def __init__(self, columns: Columns, where: str, remedy: str) -> None:
        """`where` names in messages what has these columns, `remedy` where their types are declared."""
        self._columns = dict(columns)
        self._where, self._remedy = where, remedy
        texts = {name for name, kind in columns if kind.kind == "string"}  # checked below, which costs less
        self._record = record_type(
            "Record",
            columns,
            own=lambda name: lambda kind: None if name in texts else _OWN.get(kind.kind),
            required=True,
        )
        self._is_simple = all(kind.kind in _SIMPLE for _, kind in columns)
        self._texts = [f"f{index}" for index, (name, _) in enumerate(columns) if name in texts]
        self._nested = [
            (f"f{index}", plain) for index, (_, kind) in enumerate(columns) if (plain := _plain_of(kind)) is not None
        ]

    def convert(self, values: Mapping[str, Any]) -> Any:
        """Returns a record. Raises WrongValue."""
        try:
            if self._is_simple:  # half the time
                record = msgspec.convert(values, self._record)
            else:
                record = msgspec.convert(values, self._record, dec_hook=convert)
            for name in self._texts:
                text = getattr(record, name)
                if text is not None and not text.isascii():
                    text.encode()
            for name, plain in self._nested:
                value = getattr(record, name)
                if value is not None:
                    setattr(record, name, plain(value))
        except Exception as error:  # noqa: BLE001  # from the user's objects, too
            reason = self._explain(values, error)
        else:
            return record
        raise WrongValue(reason)

    def _explain(self, values: Mapping[str, Any], error: Exception) -> str:
        missing = [name for name in self._columns if name not in values]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            return f"{self._where} has no {names}: give every column, None for NULL"
        if isinstance(error, UnicodeEncodeError):
            return (
                f"{self._where} has a string with a lone surrogate, which is not valid text: {show_value(error.object)}"
            )
        reason = rephrase(str(error)) if isinstance(error, msgspec.ValidationError) else name_error(error)
        place = _PLACE.search(str(error))
        kind = None if place is None else self._columns.get(place[1])
        if place is None or kind is None:
            return f"{self._where} cannot be {show_value(values)}: {reason}"
        reason = reason.removesuffix(f" - at `$.{place[1]}`")  # the whole column; a place inside it is told
        return (
            f"`{place[1]}` of {self._where} is {kind}, and {show_value(values.get(place[1]))} is not ({reason}): "
            f"{self._remedy}"
        )


def converter_of(name: str, kind: DataType) -> Convert:
    """Returns what checks a value of a state and makes it plain. It raises WrongValue. None stays None."""
    record = RecordConverter(((name, kind),), "the state", "store a value of that type, or declare another one")

    def careful(value: Any) -> Any:
        return record.convert({name: value}).f0

    if kind.kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind.kind]
        return lambda value: value if value.__class__ is int and -limit <= value < limit else careful(value)
    if kind.kind == "string":
        return lambda value: value if value.__class__ is str and value.isascii() else careful(value)
    if kind.kind == "double":
        return lambda value: value if value.__class__ is float else careful(value)
    return careful


# -- to a user's values ------------------------------------------------------------------------------------------------


def reader_of(kind: DataType) -> Convert | None:
    """Returns what makes a user's value of a plain one that is not None; None if they are the same.

    Lists and dicts are new each time, so that a user may change them.
    """
    match kind.kind:
        case "timestamp":
            return lambda value: EPOCH + dt.timedelta(microseconds=value)
        case "timestamp_ntz":
            return lambda value: _EPOCH_LOCAL + dt.timedelta(microseconds=value)
        case "date":
            return lambda value: dt.date.fromordinal(value + _EPOCH_DAY)
        case "array":
            assert kind.element is not None
            below = _readable(kind.element)
            return lambda value: list(map(below, value))
        case "map":
            assert kind.key is not None
            assert kind.element is not None
            key, below = _readable(kind.key), _readable(kind.element)
            return lambda value: {key(one): below(other) for one, other in value}
        case "struct":
            parts = [(name, _readable(part)) for name, part in kind.fields]
            if all(reader_of(part) is None for _, part in kind.fields):
                names = [name for name, _ in kind.fields]
                return lambda value: dict(zip(names, value))  # noqa: B905  # of one length; the check costs more
            return lambda value: {name: read(one) for (name, read), one in zip(parts, value)}  # noqa: B905  # as above
    return None


def _readable(kind: DataType) -> Convert:
    found = reader_of(kind)
    return _itself if found is None else lambda value: None if value is None else found(value)


def values_of(column: pl.Series, kind: DataType) -> Sequence[Any]:
    """Returns the values of a column as a user's code gets them."""
    from tidegate.formats.columns import plain_values

    read, values = reader_of(kind), plain_values(column)
    return values if read is None else [None if value is None else read(value) for value in values]
