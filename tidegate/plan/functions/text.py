"""Functions of strings and bytes: how they are typed."""

from __future__ import annotations

from tidegate.datatypes import BOOLEAN, INT, STRING, DataType
from tidegate.plan.functions.core import Function, Resolve, simple

STRINGS = DataType("array", element=STRING)


def _same(name: str, parameters: str) -> Resolve:
    return simple(name, parameters, STRING)


FUNCTIONS = (
    Function("upper", "text", "upper(s)", "In upper case.", _same("upper", "text"), ("ucase",)),
    Function("lower", "text", "lower(s)", "In lower case.", _same("lower", "text"), ("lcase",)),
    Function("length", "text", "length(s)", "Characters of a string, bytes of a binary.", simple("length", "bytes", INT), ("len", "char_length", "character_length")),
    Function("trim", "text", "trim(s)", "Without blanks (only U+0020) at both ends.", _same("trim", "text")),
    Function("contains", "text", "contains(s, part)", "Whether part occurs in s.", simple("contains", "text text", BOOLEAN)),
    Function("startswith", "text", "startswith(s, start)", "Whether s begins with start.", simple("startswith", "text text", BOOLEAN)),
    Function("endswith", "text", "endswith(s, end)", "Whether s ends with end.", simple("endswith", "text text", BOOLEAN)),
)  # fmt: skip
