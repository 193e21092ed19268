"""Parses column types in Spark's notation: `bigint`, `array<string>`, `struct<a: int, b: string>`."""

from __future__ import annotations

import re

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.datatypes import MAX_PRECISION, DataType, decimal_of, map_of

SIMPLE = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
)
SYNONYMS = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
SYNONYMS |= {"dec": "decimal", "numeric": "decimal", "timestamp_ltz": "timestamp"}
LATER = {
    "char",
    "varchar",
    "variant",
    "interval",
    "void",
}
TEXTS = {"char", "varchar"}
_KNOWN = ", ".join(SIMPLE) + ", decimal(p,s), array<...>, map<..., ...> or struct<...>"
ELSEWHERE = {
    "text": "string",
    "str": "string",
    "number": "double` or `bigint",
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "bytes": "binary",
    "bytea": "binary",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "list": "array<...>",
    "object": "struct<...>",
}
"""Names of types in other systems -> Spark's."""
MAX_TEXT = 10_000
MAX_DEPTH = 10

_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|`([^`]{1,200})`|([<>(),:])|([0-9]{1,9})|(.))", re.DOTALL)


class TypeProblem(Exception):
    """A type that cannot be read: message, remedy, and the column (from 1) within the text."""

    def __init__(self, message: str, remedy: str, column: int) -> None:
        super().__init__(message)
        self.message, self.remedy, self.column = message, remedy, column


def derive_type(text: str) -> DataType:
    """Parses a type; case does not matter. Raises TypeProblem."""
    if len(text) > MAX_TEXT:
        raise TypeProblem("the type is too long", f"at most {MAX_TEXT} characters", 1)
    reader = _TypeReader(text)
    result = reader.type(0)
    reader.end()
    return result


def _other_type(name: str) -> str:
    if name in ELSEWHERE:
        return f"write `{ELSEWHERE[name]}`"
    if not name:
        return f"use {_KNOWN}"
    return derive_suggestion(name, [*SIMPLE, "decimal", "array", "struct", "map"], otherwise=f"use {_KNOWN}")


class _TypeReader:
    """Recursive descent over the tokens of one type."""

    def __init__(self, text: str) -> None:
        found = list(_TOKEN.finditer(text.rstrip()))
        self._tokens = [
            (match[1] or match[2] or match[3] or match[4] or match[5] or "", match.start(match.lastindex or 0) + 1)
            for match in found
        ]
        self._quoted = {index for index, match in enumerate(found) if match[2]}
        """Indices of tokens in backticks, which are names whatever they contain."""
        self._tokens.append(("", len(text.rstrip()) + 1))
        self._at = 0

    def _next(self) -> tuple[str, int]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _expect(self, *wanted: str) -> str:
        token, column = self._next()
        if token not in wanted:
            raise TypeProblem(
                f"expected `{'` or `'.join(wanted)}` here, got {f'`{token[:60]}`' if token else 'the end'}",
                "write array<string>, map<string, int> or struct<a: int, b: string>",
                column,
            )
        return token

    def end(self) -> None:
        """Checks that nothing follows the type."""
        token, column = self._next()
        if token:
            raise TypeProblem(f"`{token[:60]}` does not belong here", "a column has one type", column)

    def type(self, depth: int) -> DataType:
        """Parses one type at the current token."""
        token, column = self._next()
        name = SYNONYMS.get(token.lower(), token.lower())
        if depth > MAX_DEPTH:
            raise TypeProblem(f"nested deeper than {MAX_DEPTH} types", "flatten it", column)
        if name in SIMPLE:
            return DataType(name)
        if name == "array":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return DataType("array", element=element)
        if name == "struct":
            return self._struct(depth)
        if name == "map":
            return self._map(depth)
        if name == "decimal":
            return self._decimal()
        if name in LATER:
            remedy = "write `string`" if name in TEXTS else f"use {_KNOWN}"
            raise TypeProblem(f"the type `{token}` is not supported yet", remedy, column)
        message = f"`{token[:60]}` is not a type" if token else "a type is missing"
        raise TypeProblem(message, _other_type(token.lower()), column)

    def _map(self, depth: int) -> DataType:
        self._expect("<")
        _, place = self._tokens[self._at]
        key = self.type(depth + 1)
        if key.kind in ("map", "array", "struct"):
            raise TypeProblem(f"a map cannot have keys of type {key}", "use a simple type for the keys", place)
        self._expect(",")
        value = self.type(depth + 1)
        self._expect(">")
        return map_of(key, value)

    def _decimal(self) -> DataType:
        """Parses the digits of a decimal; `decimal(10,0)` without them, as in Spark."""
        if self._tokens[self._at][0] != "(":
            return decimal_of(10)
        self._expect("(")
        precision = self._digits("a precision", 1, MAX_PRECISION)
        scale = 0
        if self._expect(",", ")") == ",":
            scale = self._digits("a scale", 0, precision)
            self._expect(")")
        return decimal_of(precision, scale)

    def _digits(self, what: str, least: int, most: int) -> int:
        token, place = self._next()
        if not token.isdecimal() or not least <= int(token) <= most:
            raise TypeProblem(
                f"{what} is a number from {least} to {most}" + (f", not `{token[:60]}`" if token else ""),
                "write decimal(18,2): 18 digits, 2 of them after the point",
                place,
            )
        return int(token)

    def _struct(self, depth: int) -> DataType:
        self._expect("<")
        fields: dict[str, DataType] = {}
        while True:
            quoted = self._at in self._quoted
            name, place = self._next()
            if not name or (name in "<>(),:`" and not quoted):
                raise TypeProblem("a field needs a name", "write struct<a: int, b: string>", place)
            if name in fields:
                raise TypeProblem(f"the field `{name[:60]}` is given twice", "remove one", place)
            if self._tokens[self._at][0] == ":":  # optional, as in Spark
                self._next()
            fields[name] = self.type(depth + 1)
            if self._expect(",", ">") == ">":
                return DataType("struct", fields=tuple(fields.items()))
