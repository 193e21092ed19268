"""Mapping between JSON Schema and columns. Pure; supports what drafts 4 to 2020-12 have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    NESTED,
    STRING,
    TIMESTAMP,
    DataType,
    Schema,
    map_of,
)
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.kinds.json.inference import refused_column, refused_field
from tidegate.formats.schemas import SchemaKind, SchemaText

DIALECT: Final = "http://json-schema.org/draft-07/schema#"
DEPTH_MAX: Final = 20
TYPES_MAX: Final = 10_000
"""Maximum number of types in a schema; those that `$ref` refers to count each time."""
_REMEDY: Final = "list the columns: `schema: {id: bigint}`"
_TEXTS: Final = {"date": DATE, "date-time": TIMESTAMP}
_SIMPLE: Final = {"boolean": BOOLEAN, "integer": BIGINT, "number": DOUBLE}
_NO_SCHEMA: Final = SchemaText(SchemaKind.JSON, "{}")
_REFUSED: Final = ("allOf", "not", "if", "patternProperties", "dependentSchemas", "prefixItems")
_WRITTEN: Final[Mapping[str, dict[str, Any]]] = {
    "boolean": {"type": "boolean"},
    **{kind: {"type": "integer"} for kind in ("tinyint", "smallint", "int", "bigint")},
    **{kind: {"type": "number"} for kind in ("float", "double", "decimal")},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "timestamp_ntz": {"type": "string"},
}


def read_columns(schema: SchemaText) -> Schema:
    """Returns the columns of records with this schema. Raises FormatRefusal, also for invalid column names."""
    columns = to_columns(schema)
    for name, kind in columns.items():
        if reason := refused_column(name):
            raise _refusal(f"$.{repr(name[:100])[1:-1]}", reason)
        _check_names(kind, f"$.{name}")
    return columns


def _check_names(kind: DataType, place: str) -> None:
    if kind.element is not None:
        _check_names(kind.element, f"{place}.*" if kind.kind == "map" else f"{place}[]")
    for name, field in kind.fields:
        if reason := refused_field(name):
            raise _refusal(f"{place}.{repr(name[:100])[1:-1]}", reason)
        _check_names(field, f"{place}.{name}")


def to_columns(schema: SchemaText) -> Schema:
    """Returns the properties of a schema's object. Raises FormatRefusal with the place of what cannot be a column."""
    return dict(_Reader(schema).record().fields)


def check_columns(schema: SchemaText, columns: Schema) -> None:
    """Checks that columns can be written.

    Each column must be a property of its type, and likewise each field of a struct, in any order. All required
    properties must be present. Raises FormatRefusal with the first place that violates this.
    """
    reader = _Reader(schema)
    _check_object(reader.record(), columns, "", reader.required)


def _check_object(has: DataType, fields: Schema, place: str, required: Mapping[str, set[str]]) -> None:
    properties, inside = dict(has.fields), f"{place}." if place else ""
    if lacking := required.get(f"$.{place}" if place else "$", set()) - fields.keys():
        what, remedy = ("field", "add it to the struct") if place else ("column", "select it")
        raise FormatRefusal(f"the schema requires `{inside}{min(lacking)}`, but there is no such {what}", remedy)
    for name, kind in fields.items():
        if name not in properties:
            what = "make the struct of the fields" if place else "select the columns"
            raise FormatRefusal(f"the schema has no property `{inside}{name}`", f"{what} that it has")
        _check_kind(properties[name], kind, f"{inside}{name}", required)


def _check_kind(has: DataType, kind: DataType, place: str, required: Mapping[str, set[str]]) -> None:
    if has.kind == kind.kind == "struct":
        _check_object(has, dict(kind.fields), place, required)
    elif has.kind == kind.kind and has.element is not None and kind.element is not None:
        _check_kind(has.element, kind.element, f"{place}.*" if kind.kind == "map" else f"{place}[]", required)
    elif kind.kind in NESTED or has != _Reader(_NO_SCHEMA).type(_WRITTEN[kind.kind], "$", _NOTHING, 0):
        message = f"`{place}` is {has} in the schema, but the column is {kind}"
        raise FormatRefusal(message, "cast the column, or write another schema")


def schema_title(schema: SchemaText) -> str:
    """Returns the title of a schema's object. Raises FormatRefusal."""
    title = _parse(schema).get("title")
    if not isinstance(title, str) or not title:
        raise FormatRefusal("the schema has no `title`", "write `subject: topic`")
    return title


def schema_of_columns(columns: Schema, title: str) -> dict[str, Any]:
    """Returns a schema for columns, the inverse of `to_columns`; everything is nullable."""
    properties = {name: _nullable(kind) for name, kind in columns.items()}
    return {"$schema": DIALECT, "title": title, "type": "object", "properties": properties}


def _nullable(kind: DataType) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, _written(kind)]}


def _written(kind: DataType) -> dict[str, Any]:
    if kind.kind == "array" and kind.element is not None:
        return {"type": "array", "items": _nullable(kind.element)}
    if kind.kind == "struct":
        return {"type": "object", "properties": {name: _nullable(field) for name, field in kind.fields}}
    if kind.kind == "map" and kind.element is not None:
        return {"type": "object", "additionalProperties": _nullable(kind.element)}
    return _WRITTEN[kind.kind]


def _parse(schema: SchemaText) -> dict[str, Any]:
    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise FormatRefusal(f"the schema is not JSON: {error}", "name another") from error
    if not isinstance(found, dict):
        raise FormatRefusal("the schema is not a JSON object", _REMEDY)
    return found


class _Text(NamedTuple):
    """A parsed schema, and its references by the names that it uses for them."""

    tree: Any
    references: Mapping[str, SchemaText]


_NOTHING: Final = _Text({}, {})


def _named(schema: SchemaText) -> Iterator[tuple[str, SchemaText]]:
    """Yields all references, including nested ones."""
    for name, one in schema.references:
        yield name, one
        yield from _named(one)


class _Reader:
    """Walks a schema; `$ref` refers to its own text or to that of its references."""

    def __init__(self, schema: SchemaText) -> None:
        self._schema = schema
        self._named = {**dict(_named(schema)), **dict(schema.references)}
        """References of all levels: of several texts that refer to a schema, only the first lists it among its
        references.
        """
        self._texts: dict[int, _Text] = {}
        self._left = TYPES_MAX
        self.required: dict[str, set[str]] = {}
        """Required properties of every object read so far, by its place."""

    def record(self) -> DataType:
        """Returns the type of a record, a struct."""
        text = self._text(self._schema)
        found = self.type(text.tree, "$", text, 0)
        if found.kind != "struct":
            raise FormatRefusal(f"the schema describes {found}, but a record is an object with `properties`", _REMEDY)
        return found

    def _text(self, schema: SchemaText) -> _Text:
        """`schema` is the reader's own or one of its references, so it lives as long as the reader."""
        found = self._texts.get(id(schema))
        if found is None:
            found = self._texts[id(schema)] = _Text(_parse(schema), dict(schema.references))
        return found

    def type(self, node: Any, place: str, root: _Text, depth: int) -> DataType:
        """Returns the column type of a part of a schema; `root` is the text that contains it."""
        self._left -= 1
        if self._left < 0:
            raise _refusal(place, f"there are more than {TYPES_MAX} types")
        if depth > DEPTH_MAX:
            raise _refusal(place, f"it is nested deeper than {DEPTH_MAX} types, or contains itself")
        if not isinstance(node, dict):
            raise _refusal(place, "its type is not restricted")
        if isinstance(names := node.get("required"), list):
            self.required.setdefault(place, set()).update(name for name in names if isinstance(name, str))
        if "$ref" in node:
            target, text = self._follow(node["$ref"], place, root)
            return self.type(target, place, text, depth + 1)
        match node:
            case {"allOf": [one]} if not {"type", "properties"} & node.keys():  # a `$ref` with a title or a default
                return self.type(one, place, root, depth + 1)
        for word in _REFUSED:
            if word in node:
                raise _refusal(place, f"`{word}` is not supported")
        for word in ("oneOf", "anyOf"):
            if word in node:
                return self.type(_other_than_null(node[word], place, word), place, root, depth + 1)
        return self._plain(node, place, root, depth)

    def _plain(self, node: dict[str, Any], place: str, root: _Text, depth: int) -> DataType:
        match _type_of(node, place):
            case "string":
                base64 = node.get("contentEncoding") == "base64"
                return BINARY if base64 else _TEXTS.get(str(node.get("format")), STRING)
            case "array":
                if not isinstance(node.get("items"), dict):
                    raise _refusal(place, "an array without one type of `items`")
                return DataType("array", element=self.type(node["items"], f"{place}[]", root, depth + 1))
            case "object":
                return self._object(node, place, root, depth)
            case word if word in _SIMPLE:
                return _SIMPLE[word]
            case word:
                raise _refusal(place, f"the type `{word}` is not supported")

    def _object(self, node: dict[str, Any], place: str, root: _Text, depth: int) -> DataType:
        properties, more = node.get("properties"), node.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            fields = [(name, self.type(one, f"{place}.{name}", root, depth + 1)) for name, one in properties.items()]
            return DataType("struct", fields=tuple(fields))
        if isinstance(more, dict):
            return map_of(STRING, self.type(more, f"{place}.*", root, depth + 1))
        raise _refusal(place, "an object without `properties`")

    def _follow(self, reference: object, place: str, root: _Text) -> tuple[Any, _Text]:
        """Returns the target of a `$ref`, and the text that contains it."""
        name, _, pointer = str(reference).partition("#")
        text = root
        if name:
            named = root.references.get(name) or self._named.get(name)
            if named is None:
                raise _refusal(place, f"the reference `{name[:100]}` does not exist")
            text = self._text(named)
        target = text.tree if pointer[:1] in ("", "/") else None  # an anchor is not a path
        for step in unquote(pointer).split("/")[1:]:
            word = step.replace("~1", "/").replace("~0", "~")
            target = target.get(word) if isinstance(target, dict) else None
        if target is None:
            raise _refusal(place, f"the reference `{str(reference)[:100]}` has no target")
        return target, text


def _other_than_null(branches: object, place: str, word: str) -> Any:
    known = branches if isinstance(branches, list) else []
    others = [one for one in known if not _is_null(one)]
    if len(others) != 1:
        raise _refusal(place, f"`{word}` of several types cannot be a column")
    return others[0]


def _is_null(node: object) -> bool:
    return isinstance(node, dict) and node.get("type") == "null"


def _type_of(node: dict[str, Any], place: str) -> str:
    """Returns the single type besides null; derived from the values if only these are listed."""
    named = node.get("type")
    words = [word for word in named if word != "null"] if isinstance(named, list) else [named]
    if words == [None]:
        values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
        if values and all(isinstance(value, str) for value in values):
            return "string"
        if "properties" in node:
            return "object"
        raise _refusal(place, "it has no `type`")
    if len(words) != 1 or not isinstance(words[0], str):
        raise _refusal(place, "several types cannot be a column")
    return words[0]


def _refusal(place: str, what: str) -> FormatRefusal:
    return FormatRefusal(f"the schema cannot be read as columns at `{place}`: {what}", _REMEDY)
