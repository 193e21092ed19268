"""Column types as Python types into which msgspec decodes JSON, with validation.

Types that msgspec does not support are classes defined here, whose values `convert` creates. It receives the value of
the record, with numbers as `int` or `decimal.Decimal`, never as a float.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Collection, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from tidegate.datatypes import FLOAT_BOUND, DataType
from tidegate.formats.contract import Columns
from tidegate.formats.failures import describe_undeclared
from tidegate.formats.schema_ids import PREFIX_BYTES, schema_id_of

_SHOWN_MAX: Final = 40


def _between(kind: type, low: float, high: float) -> Any:
    return Annotated[kind, msgspec.Meta(ge=low, le=high)]


SCALARS: Final[dict[str, Any]] = {
    "boolean": bool,
    "tinyint": _between(int, -(2**7), 2**7 - 1),
    "smallint": _between(int, -(2**15), 2**15 - 1),
    "int": _between(int, -(2**31), 2**31 - 1),
    "bigint": _between(int, -(2**63), 2**63 - 1),
    "float": _between(float, -FLOAT_BOUND, FLOAT_BOUND),
    "double": float,
    "string": str,
    "binary": bytes,
    "date": dt.date,
}
DOES_NOT_FIT: Final = "does not fit into "
"""Part of the reason for a number that a decimal cannot hold."""
NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
"""Digits match in one way only: otherwise matching a long text would take quadratic time."""
_NAN: Final = Decimal("NaN")
_TRUTHS: Final = {"true": True, "false": False}


TextsOf = Callable[[Any, Collection[str]], dict[str, str | None]]
"""Returns the fields of a value, without those named, as texts."""
OwnType = Callable[[DataType], Any]
"""The Python type for a column type with custom values; None for that of JSON."""
OwnTypes = Callable[[str], OwnType]
"""Returns the OwnType of a column, which also applies to nested types."""


class _Own(type):
    """Metaclass of types for `convert`. msgspec checks that a result is an instance; every value counts as one."""

    convert: Callable[[Any], Any]

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def convert(wanted: Any, value: Any) -> Any:
    """Implements the `dec_hook` of msgspec. Raises ValueError; msgspec adds the place."""
    return wanted.convert(value)


def record_type(
    name: str,
    fields: Columns,
    *,
    strict: bool = False,
    rest: str = "",
    own: OwnTypes | None = None,
    required: bool = False,
) -> type[msgspec.Struct]:
    """Returns a struct with an optional, nullable attribute `f<i>` per field (names in JSON need not be identifiers).

    :param strict: other fields are rejected, at any depth.
    :param rest: the field that `keep_rest` fills.
    :param own: types that decode other values than those of JSON.
    :param required: a field of the record itself that is missing is an error.
    """
    types = [
        msgspec.Raw if field == rest else _python_type(f"{name}_{i}", kind, strict, own and own(field)) | None
        for i, (field, kind) in enumerate(fields)
    ]
    members = [(f"f{i}", one) if required else (f"f{i}", one, None) for i, one in enumerate(types)]
    names = {f"f{i}": field for i, (field, _) in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=names, gc=False, forbid_unknown_fields=strict)


def keep_rest(decode: Callable[[Any], Any], fields: Columns, rest: str, texts_of: TextsOf) -> Callable[[Any], Any]:
    """Wraps `decode` to store the fields of a record that have no attribute of their own in the attribute of `rest`."""
    names = [name for name, _ in fields]
    attribute, known = f"f{names.index(rest)}", {*names} - {rest}

    def decode_all(value: Any) -> Any:
        record = decode(value)
        setattr(record, attribute, texts_of(value, known))
        return record

    return decode_all


_RAW_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def texts_of_fields(value: bytes, known: Collection[str]) -> dict[str, str | None]:
    """Returns the fields of a JSON object, without those in `known`, as texts. Raises ValueError."""
    return {name: _text_of(raw) for name, raw in _RAW_FIELDS(value).items() if name not in known}


def _text_of(raw: msgspec.Raw) -> str | None:
    """Returns the text of a string, the JSON of any other value, or None for null. Raises ValueError."""
    data = bytes(raw)
    if data == b"null":
        return None
    return msgspec.json.decode(data, type=str) if data.startswith(b'"') else data.decode()


def _python_type(name: str, kind: DataType, strict: bool, own: OwnType | None) -> Any:
    found = None if own is None else own(kind)
    if found is not None:
        return found
    if kind.kind == "decimal":
        return _decimal_type(kind)
    if kind.kind == "map":
        assert kind.key is not None
        assert kind.element is not None
        key = _KEYS.get(kind.key.kind) or _python_type(name, kind.key, strict, own)
        return dict[key, _python_type(name, kind.element, strict, own) | None]  # type: ignore[valid-type,misc]  # built at run time for msgspec
    if kind.element is not None:
        return list[_python_type(name, kind.element, strict, own) | None]  # type: ignore[misc]  # built at run time for msgspec
    if kind.kind == "struct":
        return record_type(name, kind.fields, strict=strict, own=own and (lambda _field: own))
    return _MOMENTS.get(kind.kind) or SCALARS[kind.kind]


class _BooleanKey(metaclass=_Own):
    """`true` and `false` as keys of a map: texts in JSON, booleans from the user's code."""

    @staticmethod
    def convert(value: Any) -> bool:
        """Converts a key. Raises ValueError."""
        if isinstance(value, bool):
            return value
        if value not in _TRUTHS:
            raise ValueError(f"Expected `true` or `false`, got {shown(value)}")
        return _TRUTHS[value]


_KEYS: Final[dict[str, Any]] = {
    "boolean": _BooleanKey,
    "double": _between(float, -sys.float_info.max, sys.float_info.max),  # not NaN, which msgspec reads from a text
}


def own_type(name: str, converts: Callable[[Any], Any]) -> _Own:
    """Returns a type whose values `converts` creates from those in the record. It raises ValueError."""
    return _Own(name, (), {"convert": staticmethod(converts)})


LONG_FRACTION: Final = r"(\.[0-9]{6})[0-9]+"
"""Matches a fraction of a second with more digits than a timestamp has."""
_cut = re.compile(LONG_FRACTION).sub
_MOMENT_TEXT: Final = len("2026-12-31T23:59:59.999999")
"""No text up to this length has more than six decimal places of a second."""
LOCAL: Final = Annotated[dt.datetime, msgspec.Meta(tz=False)]
"""A timestamp without an offset, for msgspec."""


OUTSIDE: Final = "a timestamp in UTC is before the year 1 or after 9999"
_LAST_YEARS: Final = (dt.MINYEAR, dt.MAXYEAR)


class OutsideCalendar(ValueError, OverflowError):
    """A timestamp that its offset moves out of the years 1 to 9999."""


def read_moment(value: Any, kind: Any = dt.datetime) -> dt.datetime:
    """Parses an RFC 3339 text; `kind` is `LOCAL` for a timestamp without an offset. Raises ValueError.

    Seconds are truncated to six decimal places, as in casts and in C. msgspec would round up to later times.
    """
    if value.__class__ is str and len(value) > _MOMENT_TEXT:
        value = _cut(r"\1", value, 1)
    try:
        found: dt.datetime = msgspec.convert(value, kind)
        if found.year in _LAST_YEARS and found.tzinfo is not None:
            found.astimezone(dt.UTC)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error  # msgspec adds the place
    except UnicodeEncodeError as error:  # from the user's code: half of a surrogate pair
        raise ValueError("Invalid RFC3339 encoded datetime") from error
    except OverflowError as error:
        raise OutsideCalendar(OUTSIDE) from error
    return found


def read_local(value: Any) -> dt.datetime:
    """Parses a timestamp without an offset. Raises ValueError."""
    return read_moment(value, LOCAL)


_MOMENTS: Final = {
    "timestamp": own_type("timestamp", read_moment),
    "timestamp_ntz": own_type("timestamp_ntz", read_local),
}


def exact_decimal(kind: DataType) -> Callable[[Any], Decimal]:
    """Returns the conversion of numbers and their texts to decimals. It raises ValueError for what the type cannot
    hold.
    """
    return _decimal_type(kind).convert


@cache
def _decimal_type(kind: DataType) -> _Own:
    """Accepts what the type holds exactly: a number, or its text as Kafka Connect and Debezium write it."""
    quantize = Context(prec=kind.precision, traps=[Inexact, InvalidOperation]).quantize
    scale = Decimal((0, (1,), -kind.scale))

    def exact(value: Any) -> Decimal:
        try:
            held = quantize(value if value.__class__ is Decimal else _number_of(value, kind), scale)
        except (Inexact, InvalidOperation):
            held = _NAN
        if held.is_finite():  # NaN comes from the user's code
            return held
        raise ValueError(f"{shown(value)} {DOES_NOT_FIT}{kind}")

    return own_type(str(kind), exact)


def _number_of(value: Any, kind: DataType) -> Decimal:
    match value:
        case bool():
            pass
        case int() | Decimal():
            return Decimal(value)
        case float():  # from the user's code: Python's text is what was meant
            return Decimal(repr(value))
        case str() if NUMBER.fullmatch(value):
            return Decimal(value)
        case str():
            raise ValueError(f"Expected `{kind}`, got the text {shown(value)}")
    raise ValueError(f"Expected `{kind} | null`, got `{_NAMES.get(type(value), type(value).__name__)}`")


_NAMES: Final[dict[type, str]] = {list: "array", dict: "object"}
_TYPES: Final = re.compile("`[a-z]+(?: [|] [a-z]+)*`")
_IN_WORDS: Final = {
    "bool": "boolean",
    "bytes": "binary",
    "datetime": "timestamp",
    "decimal": "number",
    "float": "number",
    "int": "integer",
    "str": "string",
}


def rephrase(reason: str) -> str:
    """Replaces Python's types in a reason of msgspec by those of JSON or of columns."""
    what, at, place = reason.partition(" - at ")
    return _TYPES.sub(lambda found: re.sub("[a-z]+", _word, found[0]), what) + at + place


def _word(found: re.Match[str]) -> str:
    return _IN_WORDS.get(found[0], found[0])


def shown(value: Any) -> str:
    """Formats a value for a reason; truncates a long one."""
    text = str(value)
    begin = text[:_SHOWN_MAX]
    return (repr(begin) if isinstance(value, str) else begin) + ("..." if len(text) > _SHOWN_MAX else "")


FRAMED: Final = b"\0"
"""First byte of a record with a schema id."""
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def describe_framed(value: bytes) -> str:
    """Describes a value that begins with `FRAMED`."""
    known = f" (id {schema_id_of(value)})" if len(value) >= PREFIX_BYTES else ""
    formats = "`json-schema`, `avro`, `protobuf` or `debezium-avro`"
    return f"it looks like a record of a schema registry{known}, so `format` is {formats}"


def describe_unexpected_value(value: bytes, declared: Collection[str]) -> str:
    """Explains why an object without any of these fields is bad; empty if it has one, or no fields at all."""
    try:
        fields = _FIELDS(value)
    except ValueError:  # a field name is not UTF-8, which is reported when it is read
        fields = {"?": msgspec.Raw()}
    if not fields or not fields.keys().isdisjoint(declared):
        return ""
    return describe_undeclared(fields, declared, _hint_of(fields))


def _hint_of(fields: Mapping[str, msgspec.Raw]) -> str:
    if _is_change(fields):
        return "it looks like a change event of Debezium: use `format: debezium`"
    if not {"schema", "payload"} <= fields.keys():
        return ""
    try:
        payload = _FIELDS(fields["payload"])
    except msgspec.ValidationError:  # not an object
        payload = {}
    if _is_change(payload):
        return "it looks like a change event of Debezium with its schema: use `format: debezium`"
    return (
        "it looks like Kafka Connect's wrapper: set `value.converter.schemas.enable=false` in the connector, or "
        "declare `payload: struct<...>`"
    )


def _is_change(fields: Mapping[str, msgspec.Raw]) -> bool:
    return "op" in fields and ("before" in fields or "after" in fields)
