"""Functions of strings and bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import polars as pl

from tidegate.expressions.bounds import MAX_VALUE_BYTES
from tidegate.expressions.compiled.compiled import Compiled, beside, compiles, eager, strict
from tidegate.expressions.compiled.sizes import bytes_of, fitting, total_bytes
from tidegate.expressions.expression import Call

_ONE: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "upper": lambda value: value.str.to_uppercase(),
    "lower": lambda value: value.str.to_lowercase(),
    "trim": lambda value: value.str.strip_chars(" "),
    "ltrim": lambda value: value.str.strip_chars_start(" "),
    "rtrim": lambda value: value.str.strip_chars_end(" "),
    "reverse": lambda value: value.str.split("").list.reverse().list.join(""),
}
_TWO: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "startswith": lambda value, part: value.str.starts_with(part),
    "endswith": lambda value, part: value.str.ends_with(part),
}
_TRIMS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "btrim": lambda value, characters: value.str.strip_chars(characters),
    "trim leading": lambda value, characters: value.str.strip_chars_start(characters),
    "trim trailing": lambda value, characters: value.str.strip_chars_end(characters),
}


@compiles(*_ONE)
def _one(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, _ONE[call.function](arguments[0].value))


@compiles(*_TWO)
def _two(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, _TWO[call.function](beside(arguments[0], arguments[1:]), arguments[1].value))


@compiles("contains")
def _contains(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    """Compiles contains. Polars' own function makes a pattern of each text of a column, which takes quadratic time."""
    value, part = beside(arguments[0], arguments[1:]), arguments[1].value
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
    value = beside(arguments[0], arguments[1:])
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
    value, part = beside(arguments[0], arguments[1:]), arguments[1].value
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
    """Compiles hashes with hashlib, one value after the other: it is written in C and takes about 1 µs per value."""
    bits = arguments[1].constant if call.function == "sha2" else None
    name = f"sha{bits or 256}" if call.function == "sha2" else call.function
    value = arguments[0].value.cast(pl.Binary)
    return strict(call, arguments, value.map_batches(_Digest(name), return_dtype=pl.String, is_elementwise=True))


class _Digest:
    """Hexadecimal digests of a column of bytes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, values: pl.Series) -> pl.Series:
        digests = [None if value is None else hashlib.new(self._name, value).hexdigest() for value in values]
        return pl.Series(digests, dtype=pl.String)


@compiles("hex")
def _hex(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    if arguments[0].type.kind == "bigint":
        digits = arguments[0].value.map_batches(_hex_numbers, return_dtype=pl.String, is_elementwise=True)
        return strict(call, arguments, digits)

    def build(inputs: Sequence[Compiled]) -> Compiled:
        return strict(call, inputs, inputs[0].value.cast(pl.Binary).bin.encode("hex").str.to_uppercase())

    return fitting(call, arguments, bytes_of(arguments[0]) * 2, build)


def _hex_numbers(values: pl.Series) -> pl.Series:
    """Formats negative numbers as two's complement of 64 bits."""
    texts = [None if value is None else f"{value & 0xFFFF_FFFF_FFFF_FFFF:X}" for value in values]
    return pl.Series(texts, dtype=pl.String)


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
    value = arguments[0].value
    return strict(call, arguments, value.map_batches(_initcaps, return_dtype=pl.String, is_elementwise=True))


def _initcaps(values: pl.Series) -> pl.Series:
    texts = [None if value is None else " ".join(map(_capital, value.split(" "))) for value in values]
    return pl.Series(texts, dtype=pl.String)


def _capital(word: str) -> str:
    return word[:1].title() + word.lower()[len(word[:1].lower()) :]
