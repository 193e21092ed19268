"""Values of a row that Debezium writes differently from what JSON sources read: numbers, dates and timestamps.

Ambiguous values are rejected, never guessed: a text may be a number or the bytes of another one, and an integer
milliseconds or microseconds. The schema in a record tells (Connect's `JsonConverter` with `schemas.enable`), or
`written_as`. Pure.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any, Final, Literal

import msgspec

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
)
from tidegate.formats.kinds.json import types as json_types
from tidegate.formats.kinds.json.types import (
    SCALARS,
    OwnType,
    OwnTypes,
    convert,
    exact_decimal,
    own_type,
    read_moment,
    shown,
)
from tidegate.formats.schemas import FormatOptions

UNITS: Final[Mapping[str, str]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
}
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"


class Said(msgspec.Struct, frozen=True):
    """The meaning of one column; empty or None if the schema does not define it."""

    unit: str = ""
    """Unit of integers that stand for timestamps."""
    decimals: str = ""
    """How texts stand for decimals, as in `written_as`."""
    scale: int | None = None
    """Scale of numbers whose bytes are in base64."""


NOTHING: Final = Said()
_TYPES: Final = {
    "boolean": BOOLEAN,
    "int8": TINYINT,
    "int16": SMALLINT,
    "int32": INT,
    "int64": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
}
NAMED: Final = {
    **dict.fromkeys(UNITS, TIMESTAMP_NTZ),
    "io.debezium.time.IsoTimestamp": TIMESTAMP_NTZ,
    "io.debezium.time.ZonedTimestamp": TIMESTAMP,
    "io.debezium.time.Date": DATE,
    "io.debezium.time.IsoDate": DATE,
    "org.apache.kafka.connect.data.Date": DATE,
}
VARIABLE: Final = "io.debezium.data.VariableScaleDecimal"
"""A decimal with the scale in each value, so that no type certainly holds it."""


class _Part(msgspec.Struct, gc=False):
    """The required parts of a schema."""

    type: str = ""
    name: str = ""
    field: str = ""
    parameters: dict[str, str] = {}
    fields: list[_Part] = []
    items: _Part | None = None


_DECODE: Final = msgspec.json.Decoder(_Part).decode


def read_said(schema: bytes) -> dict[str, Said]:
    """Returns the meaning by column of the table; empty if the schema is not that of an envelope."""
    return {column.field: _said(column) for column in _columns(schema)}


def read_types(schema: bytes) -> dict[str, DataType]:
    """Returns the types of the columns that have a corresponding type."""
    return {column.field: kind for column in _columns(schema) if (kind := _type(column)) is not None}


def _columns(schema: bytes) -> list[_Part]:
    try:
        top = _DECODE(schema)
    except (ValueError, RecursionError):
        return []
    return [column for row in top.fields if row.field in ("after", "before") for column in row.fields]


def _type(part: _Part) -> DataType | None:
    if part.name == DECIMAL:
        scale = _said(part).scale
        digits = part.parameters.get("connect.decimal.precision", "")
        precision = int(digits) if digits.isdecimal() and len(digits) < 4 else MAX_PRECISION
        fits = scale is not None and 0 <= scale <= precision <= MAX_PRECISION
        return decimal_of(precision, scale) if fits and scale is not None else None
    if part.items is not None:
        element = _type(part.items)
        return None if element is None else DataType("array", element=element)
    if part.type == "struct" and part.name != VARIABLE:
        named = [one for one in part.fields if one.field.isidentifier()]  # a pipeline file may not accept others
        fields = tuple((one.field, kind) for one in named if (kind := _type(one)) is not None)
        return DataType("struct", fields=fields) if fields else None
    return NAMED.get(part.name) or _TYPES.get(part.type)


def _said(part: _Part) -> Said:
    while part.items is not None:
        part = part.items
    if part.name == DECIMAL:
        scale = part.parameters.get("scale", "")
        return Said(decimals="base64", scale=int(scale) if scale.lstrip("-").isdecimal() and len(scale) < 5 else None)
    return Said(unit=UNITS.get(part.name, ""), decimals="text" if part.type == "string" else "")


# -- values ------------------------------------------------------------------------------------------------------------


_FIRST_DAY: Final = dt.date(1970, 1, 1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UNITS_OF: Final[dict[str, tuple[int, int]]] = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""Factor and divisor to microseconds; fractions are truncated."""
_NOT_FINITE: Final = Literal["NaN", "Infinity", "-Infinity"]
"""The texts that Connect's converter writes for them."""
_EXACT: Final = Context(prec=200)
"""More digits than any number has that is read here."""
_DIGITS_MAX: Final = 64
"""Maximum length of a base64 text: 48 bytes hold more than any decimal."""


def own_types(options: FormatOptions, said: Mapping[str, Said]) -> OwnTypes:
    """Returns the types that are read differently from JSON. The schema in a record takes precedence."""
    units = dict(options.timestamps_of)

    def of_column(column: str) -> OwnType:
        known = said.get(column, NOTHING)
        unit = UNITS_OF.get(known.unit or units.get(column, options.timestamps))

        def find(kind: DataType) -> Any:
            match kind.kind:
                case "decimal":
                    written = known.decimals or options.decimals
                    return own_type(
                        str(kind), _decimals(kind, written, kind.scale if known.scale is None else known.scale)
                    )
                case "float" | "double":
                    return SCALARS[kind.kind] | _NOT_FINITE
                case "date":
                    return own_type(str(kind), read_date)
                case "timestamp" if unit is not None:
                    return own_type(str(kind), _timestamps(unit, read_moment))
                case "timestamp_ntz":
                    return own_type(str(kind), read_local if unit is None else _timestamps(unit, read_local))
            return None

        return find

    return of_column


def _decimals(kind: DataType, written_as: str, scale: int) -> Callable[[Any], Decimal]:
    exact = exact_decimal(kind)

    def read(value: Any) -> Decimal:
        match value:
            case str():
                return exact(_number(value, kind, written_as, scale))
            case {"scale": int(own), "value": str(text)} if len(value) == 2:
                unscaled = _unscaled(text)
                if unscaled is None or isinstance(own, bool) or abs(own) > _DIGITS_MAX:
                    raise ValueError(f"Expected `{kind}`, got {shown(text)} of scale {shown(own)}")
                return exact(scaled(unscaled, own))
        return exact(value)

    return read


def _number(text: str, kind: DataType, written_as: str, scale: int) -> Decimal | str:
    """Returns the number that a text stands for. Raises ValueError."""
    if written_as == "text":
        return text
    if written_as != "base64":
        what = "the record has no schema that tells a number from base64"
        raise ValueError(f"Expected `{kind}`, got the text {shown(text)}, but {what}: see `written_as`")
    unscaled = _unscaled(text)
    if unscaled is None:
        raise ValueError(f"Expected `{kind}`, got the text {shown(text)}")
    return scaled(unscaled, scale)


def _unscaled(text: str) -> int | None:
    """Decodes base64 of a number's shortest two's complement, as Java writes it; None for any other text."""
    if not text or len(text) > _DIGITS_MAX:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    number = int.from_bytes(data, "big", signed=True)
    least = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number if len(data) == least and base64.b64encode(data) == text.encode() else None


def scaled(unscaled: int, scale: int) -> Decimal:
    """Returns the exact decimal."""
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def read_date(value: Any) -> dt.date:
    """Converts days since 1970, or a text. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool):
        text = value.removesuffix("Z") if isinstance(value, str) else value
        return _json(text, dt.date)  # type: ignore[no-any-return]  # msgspec returns the requested type
    try:
        return _FIRST_DAY + dt.timedelta(days=value)
    except OverflowError as error:
        raise ValueError(
            f"Number out of range: {shown(value)} days since 1970 are not a date from 1 to 9999"
        ) from error


def read_local(value: Any) -> dt.datetime:
    """Parses a local timestamp; Debezium's texts (`isostring`) nevertheless end with `Z`."""
    return json_types.read_local(value.removesuffix("Z") if isinstance(value, str) else value)


def _timestamps(unit: tuple[int, int], of_text: Callable[[Any], dt.datetime]) -> Callable[[Any], dt.datetime]:
    """Returns a reader of integers or texts."""

    def read(value: Any) -> dt.datetime:
        if not isinstance(value, int) or isinstance(value, bool):
            return of_text(value)
        try:
            moment = _EPOCH + dt.timedelta(microseconds=value * unit[0] // unit[1])
        except OverflowError as error:
            raise ValueError(
                f"Number out of range: {shown(value)} is not a timestamp of the years 1 to 9999"
            ) from error
        return moment if of_text is read_moment else moment.replace(tzinfo=None)

    return read


def _json(value: Any, kind: Any) -> Any:
    """Converts a value as in JSON. Raises ValueError; msgspec adds the place."""
    try:
        return msgspec.convert(value, kind, dec_hook=convert)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
