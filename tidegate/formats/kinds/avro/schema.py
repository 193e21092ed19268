"""Avro schemas as trees: parsed from JSON, with all names resolved.

fastavro also checks each text, so everything that it rejects is rejected, except for logical types and defaults, which
`check_defaults` checks where they are used. In addition, schemas are rejected that would make untrusted data dangerous:
types that contain themselves (to any depth), and arrays of values without bytes (of any number).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, FLOAT_BOUND, LAST_DAY, LAST_MOMENT
from tidegate.formats.schema_ids import SchemaRefusal
from tidegate.formats.schemas import SchemaText

NODES_MAX: Final = 5000
"""Maximum number of types in a schema; named types count wherever they are used."""
DEPTH_MAX: Final = 60
_SHOWN_MAX: Final = 200
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOGICAL: Final = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-nanos": {"long"},
    "decimal": {"bytes", "fixed"},
    "uuid": {"string"},
    "duration": {"fixed"},
}
"""Logical types and the types that they apply to. Any other is ignored, as Avro requires."""
MICROS: Final = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
"""Factor and divisor to microseconds, by the unit in the name of a logical type."""
DAY: Final = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}


class AvroRefusal(SchemaRefusal):
    """A schema that is invalid, or not usable for records of a pipeline; the message has the place."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"at `{place}`: {message}" if place else message)


class AvroField(msgspec.Struct, frozen=True):
    """A field of a record."""

    name: str
    type: AvroType
    has_default: bool = False
    default: Any = None
    """The value as given in the JSON."""
    aliases: tuple[str, ...] = ()


class AvroType(msgspec.Struct, frozen=True):
    """A type with all that it contains. `kind` is Avro's name; which other fields are set depends on it."""

    kind: str
    name: str = ""
    """Full name, including the namespace."""
    aliases: tuple[str, ...] = ()
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The symbol of an enum that replaces symbols unknown to the reader."""
    items: AvroType | None = None
    """The items of an array, or the values of a map."""
    branches: tuple[AvroType, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0

    @property
    def inside(self) -> list[AvroType]:
        """The types directly contained in it."""
        return [field.type for field in self.fields] + list(self.branches) + ([self.items] if self.items else [])

    @property
    def nullable(self) -> bool:
        """True if it is a union of null and one other type."""
        return self.kind == "union" and len(self.branches) == 2 and any(one.kind == "null" for one in self.branches)

    @property
    def bare(self) -> AvroType:
        """The type without null, or without the union around a single type."""
        if self.kind == "union":
            others = [one for one in self.branches if one.kind != "null"]
            if len(others) == 1:
                return others[0]
        return self


Meaning = Callable[[AvroType, Mapping[str, Any]], AvroType]
"""Applies a description to a type of simple values (not a record, array, map or union)."""


def with_logical(made: AvroType, one: Mapping[str, Any]) -> AvroType:
    """Returns the type with the logical type of its description, if Avro defines it for the type."""
    logical = one.get("logicalType")
    if not isinstance(logical, str) or made.kind not in _LOGICAL.get(logical, ()):
        return made
    if logical == "duration" and made.size != 12:
        return made
    if logical != "decimal":
        return msgspec.structs.replace(made, logical=logical)
    precision, scale = one.get("precision"), one.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision or precision < 1:
        return made
    if made.kind == "fixed" and precision > int((8 * made.size - 1) * math.log10(2)):
        return made
    return msgspec.structs.replace(made, logical=logical, precision=precision, scale=scale)


def parse_schema(schema: SchemaText, meaning: Meaning = with_logical) -> AvroType:
    """Parses a text into a record. Raises AvroRefusal."""
    import fastavro.schema

    reader = _Reader(meaning)
    known: dict[str, Any] = {}
    try:
        parsed = [(text, json.loads(text)) for text in _texts(schema)]
        for _, one in parsed:
            fastavro.schema.parse_schema(
                _unmeant(one), named_schemas=known, _write_hint=False, _force=True, _ignore_default_error=True
            )
        top = [reader.read(one, "", "") for _, one in parsed][-1]
    except AvroRefusal:
        raise
    except RecursionError as error:
        raise AvroRefusal("", "it is nested too deeply") from error
    except fastavro.schema.UnknownType as error:
        raise AvroRefusal("", f"there is no type {_shown(repr(error.name))}") from error
    except (ValueError, fastavro.schema.SchemaParseException) as error:
        raise AvroRefusal("", f"it is not an Avro schema: {_shown(str(error))}") from error
    except KeyError as error:
        raise AvroRefusal("", f"it is not an Avro schema: {_shown(str(error))} is missing") from error
    except (TypeError, AttributeError, OverflowError) as error:  # its message would be Python's
        raise AvroRefusal("", "it is not an Avro schema: a part of it does not follow the specification") from error
    if top.kind != "record":
        raise AvroRefusal("", f"a record is needed, but the type is {top.kind}")
    _check_bounds(top)
    return top


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _unmeant(one: Any) -> Any:
    """Removes logical types: fastavro rejects invalid ones, and Avro requires to ignore them."""
    if isinstance(one, dict):
        parts = ((key, value) for key, value in one.items() if key != "logicalType")
        return {key: value if key == "default" else _unmeant(value) for key, value in parts}
    return [_unmeant(each) for each in one] if isinstance(one, list) else one


def _texts(schema: SchemaText) -> list[str]:
    """Returns the texts of a schema, each once, referenced ones first."""
    texts: dict[str, None] = {}
    for _, one in schema.references:
        texts.update(dict.fromkeys(_texts(one)))
    texts[schema.text] = None
    return list(texts)


class _Reader:
    """Parses types. `names` holds those known so far, None for those being parsed."""

    def __init__(self, meaning: Meaning) -> None:
        self._meaning = meaning
        self._names: dict[str, AvroType | None] = {}

    def read(self, one: Any, namespace: str, place: str, depth: int = 0) -> AvroType:
        if depth > DEPTH_MAX:
            raise AvroRefusal(place[:100], f"it is nested more than {DEPTH_MAX} levels deep")
        if isinstance(one, str):
            return AvroType(one) if one in PRIMITIVES else self._named(one, namespace, place)
        if isinstance(one, list):
            return self._union(one, namespace, place, depth)
        if not isinstance(one, Mapping):
            raise AvroRefusal(place, f"{one!r} is not a type")
        kind = one.get("type")
        if kind in ("record", "error"):
            return self._record(one, namespace, place, depth)
        if kind in ("enum", "fixed"):
            return self._leaf(one, namespace, place)
        if kind == "array":
            return AvroType("array", items=self.read(one["items"], namespace, f"{place}[]", depth + 1))
        if kind == "map":
            return AvroType("map", items=self.read(one["values"], namespace, f"{place}{{}}", depth + 1))
        if kind in PRIMITIVES:
            return self._meaning(AvroType(str(kind)), one)
        return self.read(kind, namespace, place, depth + 1)

    def _named(self, name: str, namespace: str, place: str) -> AvroType:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for known in (full, name):
            if known in self._names:
                found = self._names[known]
                if found is None:
                    raise AvroRefusal(place, f"{known} contains itself, but columns have a fixed depth")
                return found
        raise AvroRefusal(place, f"there is no type {name!r}")

    def _union(self, one: list[Any], namespace: str, place: str, depth: int) -> AvroType:
        branches = tuple(self.read(branch, namespace, place, depth + 1) for branch in one)
        words = [branch.name or branch.kind for branch in branches]
        if not branches or "union" in words or len(set(words)) < len(words):
            raise AvroRefusal(place, f"a union of {', '.join(words) or 'nothing'} is not allowed in Avro")
        return AvroType("union", branches=branches)

    def _record(self, one: Mapping[str, Any], namespace: str, place: str, depth: int) -> AvroType:
        name, space = self._begin(one, namespace, place)
        fields: list[AvroField] = []
        for each in one["fields"]:
            where = f"{place}.{each['name']}" if place else str(each["name"])
            if not each["name"]:
                raise AvroRefusal(place, "a field has an empty name")
            if not NAME.fullmatch(each["name"]):
                raise AvroRefusal(
                    where, "not a valid field name in Avro: letters, digits and _, not beginning with a digit"
                )
            if any(each["name"] == field.name for field in fields):
                raise AvroRefusal(where, "there are two fields with this name")
            kind = self.read(each["type"], space, where, depth + 1)
            fields.append(
                AvroField(each["name"], kind, "default" in each, each.get("default"), _alias_names(each, where))
            )
        return self._end(AvroType("record", name, _aliases(one, space, place), fields=tuple(fields)))

    def _leaf(self, one: Mapping[str, Any], namespace: str, place: str) -> AvroType:
        name, space = self._begin(one, namespace, place)
        if one["type"] == "enum":
            made = AvroType(
                "enum", name, _aliases(one, space, place), symbols=tuple(one["symbols"]), default=one.get("default")
            )
            return self._end(made)
        size = one["size"]
        if not isinstance(size, int) or not 0 <= size <= 2**20:
            raise AvroRefusal(place, f"{size!r} is not a valid size of a fixed type")
        return self._end(self._meaning(AvroType("fixed", name, _aliases(one, space, place), size=size), one))

    def _begin(self, one: Mapping[str, Any], namespace: str, place: str) -> tuple[str, str]:
        """Returns the full name, and the namespace for types inside."""
        name = str(one["name"])
        space = one.get("namespace", namespace) or ""
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._names:
            raise AvroRefusal(place, f"the type {full} is defined twice")
        self._names[full] = None
        return full, full.rpartition(".")[0]

    def _end(self, made: AvroType) -> AvroType:
        self._names[made.name] = made
        return made


def _aliases(one: Mapping[str, Any], namespace: str, place: str) -> tuple[str, ...]:
    return tuple(
        alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in _alias_names(one, place)
    )


def _alias_names(one: Mapping[str, Any], place: str) -> tuple[str, ...]:
    found = one.get("aliases") or []
    if not isinstance(found, list) or not all(isinstance(alias, str) for alias in found):
        raise AvroRefusal(place, "`aliases` is not a list of names")
    return tuple(found)


def _check_bounds(top: AvroType) -> None:
    """Raises AvroRefusal."""
    weights: dict[int, int] = {}

    def weigh(one: AvroType, place: str) -> int:
        """Counts the types in a type."""
        if id(one) in weights:
            return weights[id(one)]
        inside = [(field.type, f"{place}.{field.name}".lstrip(".")) for field in one.fields]
        inside += [(branch, place) for branch in one.branches]
        inside += [(one.items, f"{place}[]")] if one.items else []
        total = 1 + sum(weigh(each, where) for each, where in inside)
        if total > NODES_MAX:
            raise AvroRefusal(place, f"it has more than {NODES_MAX} types")
        if one.kind == "array" and one.items is not None and not bytes_at_least(one.items):
            raise AvroRefusal(place, "elements that take no bytes: a few bytes could hold any number of them")
        weights[id(one)] = total
        return total

    weigh(top, "")


def bytes_at_least(one: AvroType) -> int:
    """Returns the minimum size of a value; 0 if it takes no bytes."""
    if one.kind == "record":
        return sum(bytes_at_least(field.type) for field in one.fields)
    if one.kind == "fixed":
        return one.size
    return {"null": 0, "float": 4, "double": 8}.get(one.kind, 1)


def as_encoded(one: AvroType) -> AvroType:
    """Returns the type without the meaning of its values, as it is encoded."""
    return msgspec.structs.replace(
        one,
        fields=tuple(AvroField(each.name, as_encoded(each.type)) for each in one.fields),
        items=None if one.items is None else as_encoded(one.items),
        branches=tuple(as_encoded(each) for each in one.branches),
        logical="",
        precision=0,
        scale=0,
        aliases=(),
    )


def as_json(one: AvroType) -> Any:
    """Returns the JSON of a type."""
    return _json(one, {})


def _json(one: AvroType, seen: dict[str, AvroType]) -> Any:
    if one.kind == "union":
        return [_json(branch, seen) for branch in one.branches]
    if one.name:
        known = seen.get(one.name)
        if known is not None:
            if known != one:
                raise AvroRefusal("", f"{one.name} is defined in two ways")
            return one.name
        seen[one.name] = one
    made: dict[str, Any] = {"type": one.kind}
    if one.name:
        name, space = one.name.rpartition(".")[::-2]
        made |= {"name": name, "namespace": space}
    if one.aliases:
        made["aliases"] = list(one.aliases)
    if one.kind == "record":
        made["fields"] = [_field_json(field, seen) for field in one.fields]
    elif one.kind == "enum":
        made["symbols"] = list(one.symbols)
        made |= {} if one.default is None else {"default": one.default}
    elif one.kind == "fixed":
        made["size"] = one.size
    elif one.items is not None:
        made["items" if one.kind == "array" else "values"] = _json(one.items, seen)
    if one.logical:
        made["logicalType"] = one.logical
        made |= {"precision": one.precision, "scale": one.scale} if one.logical == "decimal" else {}
    return one.kind if len(made) == 1 else made


def _field_json(field: AvroField, seen: dict[str, AvroType]) -> dict[str, Any]:
    made = {"name": field.name, "type": _json(field.type, seen)}
    made |= {"default": field.default} if field.has_default else {}
    return made | ({"aliases": list(field.aliases)} if field.aliases else {})


_WHOLE: Final = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_LARGEST: Final = {"float": FLOAT_BOUND, "double": sys.float_info.max}


def check_defaults(one: AvroType, place: str = "") -> None:
    """Checks all fields in a type. Raises AvroRefusal for the first invalid default."""
    for field in one.fields:
        where = f"{place}.{field.name}".lstrip(".")
        if field.has_default and not is_value(field.type, field.default):
            shown = json.dumps(field.default, ensure_ascii=False)[:_SHOWN_MAX]
            raise AvroRefusal(where, f"the default {shown} is not a value of its type")
        check_defaults(field.type, where)
    for inner in [*one.branches, *([one.items] if one.items else [])]:
        check_defaults(inner, place)


def is_value(one: AvroType, value: Any) -> bool:
    """Returns whether a JSON value is one of a type.

    Bytes are a text with one character per byte, and 0 is also a double.
    """
    match one.kind:
        case "null":
            return value is None
        case "union":
            return any(is_value(branch, value) for branch in one.branches)
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            return type(value) is int and _is_within(value, _WHOLE[one.kind]) and _has_meaning(one, value)
        case "float" | "double":
            return type(value) in (int, float) and _is_number(value, _LARGEST[one.kind])
        case "string":
            return isinstance(value, str) and (one.logical != "uuid" or _is_uuid(value))
        case "enum":
            return value in one.symbols
        case "bytes" | "fixed":
            return isinstance(value, str) and _is_binary(one, value)
        case "array":
            return isinstance(value, list) and all(_is_item(one, item) for item in value)
        case "map":
            return isinstance(value, dict) and all(_is_item(one, item) for item in value.values())
    return isinstance(value, dict) and all(
        is_value(field.type, value[field.name]) if field.name in value else field.has_default for field in one.fields
    )


def _is_item(one: AvroType, value: Any) -> bool:
    return one.items is not None and is_value(one.items, value)


def _is_number(value: float, largest: float) -> bool:
    """Converts to a double, as for numbers in JSON records, so that the bounds are the same."""
    try:
        return abs(float(value)) <= largest
    except OverflowError:
        return False


def _is_within(value: int, bounds: tuple[int, int]) -> bool:
    return bounds[0] <= value <= bounds[1]


def _has_meaning(one: AvroType, value: int) -> bool:
    """Returns whether a number is a day, time or timestamp within the range of a column."""
    if not one.logical:
        return True
    if one.logical == "date":
        return _is_within(value, (FIRST_DAY, LAST_DAY))
    if one.logical in DAY:
        return _is_within(value, (0, DAY[one.logical] - 1))
    factor, divisor = MICROS[one.logical.rpartition("-")[2]]
    return _is_within(value * factor // divisor, (FIRST_MOMENT, LAST_MOMENT))


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _is_binary(one: AvroType, text: str) -> bool:
    try:
        data = text.encode("latin-1")
    except UnicodeEncodeError:
        return False
    if one.kind == "fixed" and len(data) != one.size:
        return False
    return one.logical != "decimal" or abs(int.from_bytes(data, "big", signed=True)) < 10**one.precision
