"""LIKE and regular expressions: Java's patterns, run by Polars."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from tidegate.expressions.bounds import MAX_VALUE_BYTES
from tidegate.expressions.compiled.compiled import Compiled, compiles, strict
from tidegate.expressions.compiled.sizes import bytes_of, fitting
from tidegate.expressions.expression import Call
from tidegate.formats.java_regex import derive_like_regex, derive_rust_regex, derive_rust_replacement

_PLAIN_LIKE = re.compile(r"(%?)([^%_\\]*)(%?)")


def _rust(argument: Compiled) -> str:
    return derive_rust_regex(str(argument.constant)).pattern


@compiles("rlike")
def _matches(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.str.contains(_rust(arguments[1])))


@compiles("regexp_extract")
def _extract(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, group = arguments[0].value, int(arguments[2].constant or 0)
    found = value.str.extract(_rust(arguments[1]), group).fill_null("")
    return strict(call, arguments, pl.when(value.is_not_null()).then(found))


@compiles("regexp_replace")
def _replace(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Bounds the size: a group in the replacement is at most as long as its match, and all matches as the text."""
    found = derive_rust_regex(str(arguments[1].constant))
    replacement = derive_rust_replacement(str(arguments[2].constant), found.groups)

    def build(inputs: Sequence[Compiled]) -> Compiled:
        return strict(call, inputs, inputs[0].value.str.replace_all(found.pattern, replacement))

    if not replacement:
        return build(arguments)
    size, each = bytes_of(arguments[0]), len(replacement.encode())
    copies = 1 + replacement.count("${")
    at_most = size * (copies + each)
    matches = pl.when(at_most > MAX_VALUE_BYTES).then(arguments[0].value).str.count_matches(found.pattern)
    exact = size * copies + matches.cast(pl.Int64) * each
    return fitting(call, arguments, pl.when(at_most > MAX_VALUE_BYTES).then(exact).otherwise(at_most), build)


@compiles("regexp_extract_all")
def _extract_all(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Matches each match again to get its group. This is exact because the pattern ignores the surrounding text."""
    group, pattern = int(arguments[2].constant or 0), _rust(arguments[1])
    found = arguments[0].value.str.extract_all(pattern)
    if group:
        found = found.list.eval(pl.element().str.extract(pattern, group).fill_null(""))
    return strict(call, arguments, found)


@compiles("regexp_count")
def _count(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.str.count_matches(_rust(arguments[1])).cast(pl.Int32))


@compiles("regexp_substr")
def _substring(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.str.extract(_rust(arguments[1]), 0))


@compiles("regexp_instr")
def _position(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles regexp_instr. Polars returns a byte position, so the characters before it are counted."""
    value = arguments[0].value
    place = value.str.find(_rust(arguments[1]))
    before = value.cast(pl.Binary).bin.slice(0, place).cast(pl.String)
    found = pl.when(place.is_not_null()).then(before.str.len_chars() + 1).otherwise(0).cast(pl.Int32)
    return strict(call, arguments, pl.when(value.is_not_null()).then(found))


@compiles("split")
def _split(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, arguments[0].value.str.split(_rust(arguments[1]), literal=False))


@compiles("like", "ilike")
def _like(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles LIKE. The usual patterns (`x%`, `%x`, `%x%`, no wildcard) need no regular expression."""
    value, pattern, escape = arguments[0].value, str(arguments[1].constant), str(arguments[2].constant)
    if call.function == "ilike":
        value, pattern, escape = value.str.to_lowercase(), pattern.lower(), escape.lower()
    plain = _PLAIN_LIKE.fullmatch(pattern) if escape == "\\" else None
    if plain is None or not plain[2]:
        return strict(call, arguments, value.str.contains(derive_like_regex(pattern, escape)))
    first, text, last = plain.groups()
    if first and last:
        return strict(call, arguments, value.str.contains(text, literal=True))
    if last:
        return strict(call, arguments, value.str.starts_with(text))
    return strict(call, arguments, value.str.ends_with(text) if first else value == text)
