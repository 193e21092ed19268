"""Text <-> dates and timestamps, by Spark's rules for casts and by patterns; columns at once, in UTC."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.expressions.compiled.calendar import DAY, days_of, is_date
from tidegate.expressions.date_patterns import Part
from tidegate.expressions.text_values import DATE, OFFSET_MINUTES_MAX
from tidegate.expressions.text_values import TIMESTAMP as TIMESTAMP_TEXT
from tidegate.formats.columns import TIMESTAMP

_FIELDS = {"yyyy": "y", "MM": "mo", "dd": "d", "HH": "h", "mm": "mi", "ss": "s"}


def date_of_text(text: pl.Expr) -> pl.Expr:
    """`2026`, `2026-1`, `2026-1-31`, with anything after a blank or T; NULL when it is not a date."""
    groups = text.str.extract_groups(DATE)
    year, month, day = (_number(groups, name, default) for name, default in (("y", None), ("mo", 1), ("d", 1)))
    return pl.when(is_date(year, month, day)).then(days_of(year, month, day)).cast(pl.Int32).cast(pl.Date)


def timestamp_of_text(text: pl.Expr) -> pl.Expr:
    """A date, or a date and `12[:34[:56[.789]]]`, with Z, UTC, GMT or an offset; NULL when it is neither."""
    groups = text.str.extract_groups(TIMESTAMP_TEXT)
    hours, minutes = _number(groups, "zh", 0), _number(groups, "zm", 0)
    sign = pl.when(groups.struct.field("zs") == "-").then(-1).otherwise(1)
    offset = sign * (hours * 60 + minutes)
    valid = (hours * 60 + minutes <= OFFSET_MINUTES_MAX) & (minutes < 60)
    micros = _micros(groups)
    return pl.when(valid).then(micros - offset * 60_000_000).cast(TIMESTAMP)


def _micros(groups: pl.Expr) -> pl.Expr:
    """Microseconds of the fields y mo d h mi s f; NULL when one is out of its range."""
    year, month, day = (_number(groups, name, default) for name, default in (("y", None), ("mo", 1), ("d", 1)))
    hour, minute, second = (_number(groups, name, 0) for name in ("h", "mi", "s"))
    fraction = groups.struct.field("f").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64, strict=False)
    valid = is_date(year, month, day) & (hour < 24) & (minute < 60) & (second < 60)
    micros = days_of(year, month, day) * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction.fill_null(0)
    return pl.when(valid).then(micros)


def _number(groups: pl.Expr, name: str, default: int | None) -> pl.Expr:
    """A group as a number; the default where the group took no part in the match (never where nothing matched)."""
    found = groups.struct.field(name).cast(pl.Int64, strict=False)
    return found if default is None else found.fill_null(default)


def text_of_timestamp(value: pl.Expr) -> pl.Expr:
    """`2026-01-31 12:34:56.789`, without trailing zeros of the fraction."""
    text = value.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
    return text.str.strip_chars_end("0").str.strip_suffix(".")


def timestamp_by_pattern(text: pl.Expr, parts: Sequence[Part]) -> pl.Expr:
    """A timestamp from text of exactly this pattern; NULL when it does not fit."""
    names = [*_FIELDS.values(), "f"]
    pattern = "".join(_part_regex(part) for part in parts)
    absent = [name for name in names if f"(?P<{name}>" not in pattern]
    pattern += "".join(f"(?P<{name}>)?" for name in absent)
    return _micros(text.str.extract_groups(rf"\A{pattern}\z")).cast(TIMESTAMP)


def _part_regex(part: Part) -> str:
    if not part.field:
        return "".join(f"\\x{{{ord(character):x}}}" for character in part.text)
    name = _FIELDS.get(part.field, "f")
    return f"(?P<{name}>[0-9]{{{len(part.field)}}})"


def text_by_pattern(value: pl.Expr, parts: Sequence[Part]) -> pl.Expr:
    """A timestamp as text of this pattern."""
    plain = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSS": "%3f", "SSSSSS": "%6f"}
    if all(not part.field or part.field in plain for part in parts):
        return value.dt.to_string("".join(plain.get(part.field, part.text.replace("%", "%%")) for part in parts))
    fraction = value.dt.microsecond().cast(pl.String).str.zfill(6)
    pieces = [
        fraction.str.slice(0, len(part.field)) if part.field.startswith("S")
        else value.dt.to_string(plain[part.field]) if part.field
        else pl.lit(part.text)
        for part in parts
    ]  # fmt: skip
    return pl.concat_str(pieces)
