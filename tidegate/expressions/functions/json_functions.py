"""Typing rules of functions of JSON text."""

from __future__ import annotations

import re

from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.datatypes import INT, STRING, DataType
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Expression
from tidegate.expressions.functions.core import Argument, Site, resolves, simple
from tidegate.expressions.patterns import PatternRefused, derive_path

_NESTED = ("struct", "array", "map")
_READ = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp")
_FIELD = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|`([^`]+)`)\s+(\S.*)", re.DOTALL)

simple("text", INT, "json_array_length")
simple("text", DataType("array", element=STRING), "json_object_keys")


@resolves("get_json_object", takes=2)
def _get(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    path = site.fixed_text(arguments[1])
    try:
        derive_path(path)
    except PatternRefused as refused:
        remedy = "write it like $.order.lines[0].price; for wildcards use from_json and transform"
        raise ExpressionRefusal(arguments[1].start, f"the path {refused}", remedy) from refused
    return site.call(STRING, site.text(arguments[0]), path)


def _schema(site: Site, argument: Argument) -> DataType:
    """Parses `a int, b string`, or a struct, array or map type."""
    text = site.fixed_text(argument)
    try:
        fields = [_FIELD.fullmatch(part) for part in _parts(text)]
        if all(fields) and not re.match(r"\s*(struct|array|map)\s*<", text, re.IGNORECASE):
            named = [(found[1] or found[2], derive_type(found[3])) for found in fields if found]
            kind = DataType("struct", fields=tuple(named))
        else:
            kind = derive_type(text)
    except TypeProblem as problem:
        raise ExpressionRefusal(argument.start, f"the schema '{text}': {problem.message}", problem.remedy) from problem
    names = [name for name, _ in kind.fields]
    if len({name.lower() for name in names}) < len(names):
        raise ExpressionRefusal(argument.start, "two fields of the schema have the same name", "rename one")
    return kind


def _parts(text: str) -> list[str]:
    """Splits at the commas outside brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _check_readable(argument: Argument, kind: DataType) -> None:
    if kind.key is not None and kind.key != STRING:
        raise ExpressionRefusal(
            argument.start, f"the keys of a map in JSON are strings, not {kind.key}", "use map<string, ...>"
        )
    parts = [field for _, field in kind.fields] + ([kind.element] if kind.element else [])
    for part in parts:
        _check_readable(argument, part)
    if kind.kind not in (*_READ, *_NESTED):
        remedy = "read it as string, then cast it" + (", or use unbase64" if kind.kind == "binary" else "")
        raise ExpressionRefusal(argument.start, f"`from_json` does not support {kind}", remedy)


@resolves("from_json", takes=2)
def _from(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    kind = _schema(site, arguments[1])
    if kind.kind not in _NESTED:
        raise ExpressionRefusal(
            arguments[1].start, f"`from_json` reads a struct, an array or a map, not {kind}", "write: 'a int'"
        )
    _check_readable(arguments[1], kind)
    return site.call(kind, site.text(arguments[0]))


@resolves("to_json", takes=1)
def _to(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    kind = arguments[0].type
    if kind.kind not in _NESTED:
        raise site.refuse(arguments[0], "a struct, an array or a map")
    _check_writable(site, arguments[0], kind)
    return site.call(STRING, arguments[0].expression)


def _check_writable(site: Site, argument: Argument, kind: DataType) -> None:
    if kind.key is not None and kind.key != STRING:
        raise site.refuse(argument, "maps with keys that are strings")
    for part in [field for _, field in kind.fields] + ([kind.element] if kind.element else []):
        _check_writable(site, argument, part)
