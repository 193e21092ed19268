"""Functions of strings and bytes, of patterns in them, and `format_string` as `java.util.Formatter` writes it."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import polars as pl

from tidegate.expressions.bounds import MAX_VALUE_BYTES
from tidegate.expressions.compiled.compiled import (
    Compiled,
    bytes_of,
    compiles,
    eager,
    fitting,
    plain,
    strict,
    total_bytes,
    with_rows_of,
)
from tidegate.expressions.compiled.json_text import java_double, java_float
from tidegate.expressions.compiled.rowwise import by_row, text_within_limit
from tidegate.expressions.expression import Call
from tidegate.expressions.patterns import Piece, derive_format
from tidegate.formats.failures import FailureKind
from tidegate.formats.java_regex import derive_like_regex, derive_rust_regex, derive_rust_replacement

plain(
    {
        "upper": lambda value: value.str.to_uppercase(),
        "lower": lambda value: value.str.to_lowercase(),
        "trim": lambda value: value.str.strip_chars(" "),
        "ltrim": lambda value: value.str.strip_chars_start(" "),
        "rtrim": lambda value: value.str.strip_chars_end(" "),
        "reverse": lambda value: value.str.split("").list.reverse().list.join(""),
        "startswith": lambda value, part: value.str.starts_with(part),
        "endswith": lambda value, part: value.str.ends_with(part),
    }
)
_TRIMS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "btrim": lambda value, characters: value.str.strip_chars(characters),
    "trim leading": lambda value, characters: value.str.strip_chars_start(characters),
    "trim trailing": lambda value, characters: value.str.strip_chars_end(characters),
}


@compiles("contains")
def _contains(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles contains. Polars' own function makes a pattern of each text of a column, which takes quadratic time."""
    value, part = with_rows_of(arguments[0], arguments[1:]), arguments[1].value
    if arguments[1].constant is not None:
        return strict(call, arguments, value.str.contains(part, literal=True))
    found = (part == "") | _split_once(value, part)[1].is_not_null()
    return strict(call, arguments, null_if_any_null(found, arguments))


def _split_once(value: pl.Expr, part: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Returns the text before a part and the text after it. The latter is NULL if the part does not occur."""
    halves = value.str.splitn(part, 2).struct
    return halves.field("field_0"), halves.field("field_1")


@compiles(*_TRIMS)
def _trim(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value = with_rows_of(arguments[0], arguments[1:])
    characters = arguments[1].value if len(arguments) == 2 else pl.lit(" ")
    trimmed = pl.when(characters == "").then(value).otherwise(_TRIMS[call.function](value, characters))
    return strict(call, arguments, null_if_any_null(trimmed, arguments))


def null_if_any_null(value: pl.Expr, arguments: Sequence[Compiled]) -> pl.Expr:
    """Returns NULL if an argument is NULL, for Polars functions that take NULL as a default."""
    variable = [argument.value.is_not_null() for argument in arguments if argument.constant is None]
    return pl.when(pl.all_horizontal(variable)).then(value) if variable else value


@compiles("length", "octet_length")
def _length(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value = arguments[0].value
    if arguments[0].type.kind == "binary":
        size = value.bin.size()
    else:
        size = value.str.len_chars() if call.function == "length" else value.str.len_bytes()
    return strict(call, arguments, size.cast(pl.Int32))


@compiles("concat")
def _concat(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def build(parts: Sequence[Compiled]) -> Compiled:
        return eager(call, parts, pl.concat_str([part.value for part in parts]))

    return fitting(call, arguments, total_bytes(arguments, nulls_count=False), build)


@compiles("concat_ws")
def _concat_with(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    separator, parts = str(arguments[0].constant), arguments[1:]

    def build(inputs: Sequence[Compiled]) -> Compiled:
        values = [part.value for part in inputs[1:]]
        return eager(call, inputs, pl.concat_str(values, separator=separator, ignore_nulls=True))

    size = total_bytes(parts, nulls_count=True) + len(separator.encode()) * (len(parts) - 1)
    return fitting(call, arguments, size, build, masked=range(1, len(arguments)))


@compiles("substring", "left", "right")
def _substring(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Uses positions as Spark does: 0 counts as 1, negative from the end. A start before the text shortens it."""
    value, position = arguments[0].value, arguments[1].value.cast(pl.Int64)
    size = value.str.len_chars().cast(pl.Int64)
    everything = pl.lit((1 << 31) - 1, pl.Int64)
    if call.function == "left":
        found = value.str.slice(pl.lit(0), position.clip(0).cast(pl.UInt64, strict=False))
    elif call.function == "right":
        found = value.str.slice((size - position.clip(0)).clip(0), None)
        found = pl.when(position <= 0).then(pl.lit("")).otherwise(found)
    else:
        length = arguments[2].value.cast(pl.Int64) if len(arguments) == 3 else everything
        start = (
            pl.when(position > 0)
            .then(position - 1)
            .when(position < 0)
            .then(size + position)
            .otherwise(pl.lit(0, pl.Int64))
        )
        kept = (start + length - start.clip(0)).clip(0)
        found = value.str.slice(start.clip(0), kept.cast(pl.UInt64, strict=False))
    return strict(call, arguments, null_if_any_null(found, arguments))


@compiles("lpad", "rpad")
def _pad(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, length, pad = arguments[0].value, int(arguments[1].constant or 0), str(arguments[2].constant)
    if length <= 0:
        return strict(call, arguments, pl.when(value.is_not_null()).then(pl.lit("")))
    cut = value.str.slice(0, length)
    if not pad:
        return strict(call, arguments, cut)
    missing = (pl.lit(length, pl.Int64) - value.str.len_chars().cast(pl.Int64)).clip(0)
    padding = pl.lit((pad * length)[:length]).str.slice(pl.lit(0), missing.cast(pl.UInt64, strict=False))
    return strict(call, arguments, padding + cut if call.function == "lpad" else cut + padding)


@compiles("repeat")
def _repeat(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    count = max(0, int(arguments[1].constant or 0))

    def build(inputs: Sequence[Compiled]) -> Compiled:
        value = inputs[0].value
        repeated = value.repeat_by(count).list.join("") if count else pl.when(value.is_not_null()).then(pl.lit(""))
        return strict(call, inputs, null_if_any_null(repeated, inputs[:1]))

    return fitting(call, arguments, bytes_of(arguments[0]) * count, build)


@compiles("instr")
def _position(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles instr. Polars returns a byte position, so the characters before it are counted."""
    value, part = with_rows_of(arguments[0], arguments[1:]), arguments[1].value
    before, after = _split_once(value, part)
    found = pl.when(part == "").then(1).when(after.is_not_null()).then(before.str.len_chars() + 1).otherwise(0)
    return strict(call, arguments, null_if_any_null(found.cast(pl.Int32), arguments))


@compiles("replace")
def _replace(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    old, new = str(arguments[1].constant), str(arguments[2].constant)

    def build(inputs: Sequence[Compiled]) -> Compiled:
        value = inputs[0].value
        return strict(call, inputs, value.str.replace_all(old, new, literal=True) if old else value)

    more = len(new.encode()) - len(old.encode())
    if not old or more <= 0:
        return build(arguments)
    size = bytes_of(arguments[0])
    at_most = size + size // len(old.encode()) * more
    places = pl.when(at_most > MAX_VALUE_BYTES).then(arguments[0].value).str.count_matches(old, literal=True)
    exact = size + places.cast(pl.Int64) * more
    return fitting(call, arguments, pl.when(at_most > MAX_VALUE_BYTES).then(exact).otherwise(at_most), build)


@compiles("split_part")
def _split_part(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, number = arguments[0].value, int(arguments[2].constant or 0)
    parts = value.str.split(str(arguments[1].constant))
    part = parts.list.get(number - 1 if number > 0 else number, null_on_oob=True)
    return strict(call, arguments, pl.when(value.is_not_null()).then(part.fill_null("")))


@compiles("md5", "sha1", "sha2")
def _hash(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    name = f"sha{arguments[1].constant or 256}" if call.function == "sha2" else call.function

    def each(value: str | bytes) -> str:
        return hashlib.new(name, value if isinstance(value, bytes) else value.encode()).hexdigest()

    return by_row(call, arguments[:1], each)


@compiles("hex")
def _hex(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "bigint":
        return by_row(call, arguments, lambda value: f"{value & 0xFFFF_FFFF_FFFF_FFFF:X}")  # the two's complement

    def build(inputs: Sequence[Compiled]) -> Compiled:
        return strict(call, inputs, inputs[0].value.cast(pl.Binary).bin.encode("hex").str.to_uppercase())

    return fitting(call, arguments, bytes_of(arguments[0]) * 2, build)


@compiles("unhex")
def _unhex(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles unhex. An odd number of digits gets a leading 0."""
    value = arguments[0].value
    odd = value.str.len_bytes() % 2 == 1
    padded = pl.when(odd).then(pl.concat_str([pl.lit("0"), value])).otherwise(value)
    return strict(call, arguments, padded.str.decode("hex", strict=False))


@compiles("base64")
def _base64(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def build(inputs: Sequence[Compiled]) -> Compiled:
        return strict(call, inputs, inputs[0].value.cast(pl.Binary).bin.encode("base64"))

    return fitting(call, arguments, (bytes_of(arguments[0]) + 2) // 3 * 4, build)


@compiles("initcap")
def _initcap(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return by_row(call, arguments, lambda text: " ".join(map(_capital, text.split(" "))))


def _capital(word: str) -> str:
    return word[:1].title() + word.lower()[len(word[:1].lower()) :]


_PLAIN_LIKE = re.compile(r"(%?)([^%_\\]*)(%?)")


def _rust(argument: Compiled) -> str:
    return derive_rust_regex(str(argument.constant)).pattern


def _place_of_match(value: pl.Expr, pattern: str) -> pl.Expr:
    """Returns the position of the first match. Polars returns a position in bytes, so characters are counted."""
    place = value.str.find(pattern)
    before = value.cast(pl.Binary).bin.slice(0, place).cast(pl.String)
    found = pl.when(place.is_not_null()).then(before.str.len_chars() + 1).otherwise(0)
    return pl.when(value.is_not_null()).then(found.cast(pl.Int32))


_OF_PATTERN: dict[str, Callable[[pl.Expr, str], pl.Expr]] = {
    "rlike": lambda value, pattern: value.str.contains(pattern),
    "regexp_count": lambda value, pattern: value.str.count_matches(pattern).cast(pl.Int32),
    "regexp_substr": lambda value, pattern: value.str.extract(pattern, 0),
    "regexp_instr": _place_of_match,
    "split": lambda value, pattern: value.str.split(pattern, literal=False),
}


@compiles(*_OF_PATTERN)
def _of_pattern(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, _OF_PATTERN[call.function](arguments[0].value, _rust(arguments[1])))


@compiles("regexp_extract")
def _extract(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, group = arguments[0].value, int(arguments[2].constant or 0)
    found = value.str.extract(_rust(arguments[1]), group).fill_null("")
    return strict(call, arguments, pl.when(value.is_not_null()).then(found))


@compiles("regexp_replace")
def _replace_matches(call: Call, arguments: Sequence[Compiled]) -> Compiled:
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


@compiles("like", "ilike")
def _like(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles LIKE. The usual patterns (`x%`, `%x`, `%x%`, no wildcard) need no regular expression."""
    value, pattern, escape = arguments[0].value, str(arguments[1].constant), str(arguments[2].constant)
    if call.function == "ilike":
        value, pattern, escape = value.str.to_lowercase(), pattern.lower(), escape.lower()
    usual = _PLAIN_LIKE.fullmatch(pattern) if escape == "\\" else None
    if usual is None or not usual[2]:
        return strict(call, arguments, value.str.contains(derive_like_regex(pattern, escape)))
    first, text, last = usual.groups()
    if first and last:
        return strict(call, arguments, value.str.contains(text, literal=True))
    if last:
        return strict(call, arguments, value.str.starts_with(text))
    return strict(call, arguments, value.str.ends_with(text) if first else value == text)


_CONTEXT = Context(prec=800, rounding=ROUND_HALF_UP)


@compiles("format_string")
def _format(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    pieces = derive_format(str(arguments[0].constant))
    kinds = [one.type.kind for one in arguments[1:]]

    def each(*values: Any) -> str:
        parts = [
            _formatted(piece, values[piece.argument], kinds[piece.argument]) if piece.conversion else piece.text
            for piece in pieces
        ]
        text = "".join(parts)
        text_within_limit(text)
        return text

    return by_row(call, arguments[1:] or arguments, each, FailureKind.RESULT_TOO_LARGE, needed=0)


def _formatted(piece: Piece, value: Any, kind: str) -> str:
    if piece.conversion == "s" or value is None:
        text = _text(value, kind)
        return _padded(piece, text if piece.precision is None else _cut(text, piece.precision))
    if isinstance(value, float) and not math.isfinite(value):
        return _padded(piece, java_double(value))
    digits = _digits(piece, value)
    return digits.zfill(piece.width) if "0" in piece.flags else _padded(piece, digits)


def _digits(piece: Piece, value: float) -> str:
    grouped = "," if "," in piece.flags else ""
    if piece.conversion == "d":
        return format(value, f"{grouped}d")
    digits = 6 if piece.precision is None else piece.precision
    shortest = Decimal(java_double(value))  # a float is formatted as a double, as in Java
    return format(shortest.quantize(Decimal(1).scaleb(-digits), context=_CONTEXT), f"{grouped}.{digits}f")


def _text(value: Any, kind: str) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return java_float(value) if kind == "float" else java_double(value)
    return str(value)


def _cut(text: str, units: int) -> str:
    """Returns the first characters. Java counts UTF-16 units, and half a character becomes `?`."""
    if text.isascii():
        return text[:units]
    cut = text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "replace")
    return cut[:-1] + "?" if cut.endswith("\ufffd") and not text.startswith(cut) else cut


def _padded(piece: Piece, text: str) -> str:
    more = 0 if text.isascii() else len(text.encode("utf-16-le")) // 2 - len(text)
    return text.ljust(piece.width - more) if "-" in piece.flags else text.rjust(piece.width - more)
