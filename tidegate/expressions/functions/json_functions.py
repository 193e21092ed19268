"""Typing rules of functions of JSON text."""

from __future__ import annotations

import re

from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.datatypes import INT, STRING, DataType
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count, simple
from tidegate.expressions.patterns import PatternRefused, derive_path

_NESTED = ("struct", "array", "map")
_READ = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp")
_FIELD = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|`([^`]+)`)\s+(\S.*)", re.DOTALL)


def _get(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    path = site.fixed_text(arguments[1])
    try:
        derive_path(str(path.value) if isinstance(path, Literal) else "")
    except PatternRefused as refused:
        remedy = "write it like $.order.lines[0].price; for wildcards use from_json and transform"
        raise ExpressionRefusal(arguments[1].start, f"the path {refused}", remedy) from refused
    return Call("get_json_object", (site.text(arguments[0]), path), STRING)


def _schema(site: Site, argument: Argument) -> DataType:
    """Parses `a int, b string`, or a struct, array or map type."""
    literal = site.fixed_text(argument)
    text = str(literal.value) if isinstance(literal, Literal) else ""
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


def _from(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    kind = _schema(site, arguments[1])
    if kind.kind not in _NESTED:
        raise ExpressionRefusal(
            arguments[1].start, f"`from_json` reads a struct, an array or a map, not {kind}", "write: 'a int'"
        )
    _check_readable(arguments[1], kind)
    return Call("from_json", (site.text(arguments[0]),), kind)


def _to(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, 1)
    kind = arguments[0].type
    if kind.kind not in _NESTED:
        raise site.refuse(arguments[0], "a struct, an array or a map")
    _check_writable(site, arguments[0], kind)
    return Call("to_json", (arguments[0].expression,), STRING)


def _check_writable(site: Site, argument: Argument, kind: DataType) -> None:
    if kind.key is not None and kind.key != STRING:
        raise site.refuse(argument, "maps with keys that are strings")
    for part in [field for _, field in kind.fields] + ([kind.element] if kind.element else []):
        _check_writable(site, argument, part)


def _of_text(name: str, result: DataType) -> Resolve:
    return simple(name, "text", result)


FUNCTIONS = (
    Function(
        "get_json_object",
        "json",
        "get_json_object(s, '$.a.b[0]')",
        "The value at a path in JSON text: a string without quotes, an object or array as JSON; NULL if there is none.",
        _get,
    ),
    Function(
        "from_json",
        "json",
        "from_json(s, 'a int, b array<string>')",
        "A struct, array or map from JSON text. A field that does not fit its type is NULL. Text that is not JSON "
        "becomes a struct of NULLs, or NULL for an array or a map.",
        _from,
    ),
    Function(
        "to_json",
        "json",
        "to_json(a)",
        "JSON text of a struct, array or map; fields that are NULL are left out, times have milliseconds.",
        _to,
    ),
    Function(
        "json_array_length",
        "json",
        "json_array_length(s)",
        "The number of elements of the outermost array of JSON text; NULL if it is not an array.",
        _of_text("json_array_length", INT),
    ),
    Function(
        "json_object_keys",
        "json",
        "json_object_keys(s)",
        "The names in the outermost object of JSON text as an array; NULL if it is not an object.",
        _of_text("json_object_keys", DataType("array", element=STRING)),
    ),
)
