"""The proleptic Gregorian calendar on whole columns, and text as dates and timestamps and back, in UTC.

Polars panics on dates far outside the calendar, so values are kept within the years 1 to 9999. A result outside this
range fails its record, whereas Spark accepts years up to 294247. Text is read by Spark's cast rules and by patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from tidegate.datatypes import DATE, FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, DataType
from tidegate.datatypes import TIMESTAMP as MOMENT
from tidegate.expressions.patterns import VARIABLE, ZONES, Part
from tidegate.expressions.text_values import DATE as DATE_TEXT
from tidegate.expressions.text_values import OFFSET_MINUTES_MAX
from tidegate.expressions.text_values import TIMESTAMP as TIMESTAMP_TEXT
from tidegate.formats.columns import TIMESTAMP, polars_type

DAY = 86_400_000_000  # microseconds
TIMESTAMP_NTZ = polars_type(DataType("timestamp_ntz"))
_FIELDS = {"yyyy": "y", "MM": "mo", "dd": "d", "HH": "h", "mm": "mi", "ss": "s"}
_FIELDS |= {"M": "mo", "d": "d", "H": "h", "m": "mi", "s": "s"}
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def outside_calendar(physical: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns where days (date) or microseconds (timestamp) leave the years 1 to 9999."""
    first, last = (FIRST_DAY, LAST_DAY) if kind == DATE else (FIRST_MOMENT, LAST_MOMENT)
    return (physical < first) | (physical > last)


def within_calendar(value: pl.Expr, kind: DataType) -> tuple[pl.Expr, pl.Expr]:
    """Returns a date or timestamp column that is safe to pass to Polars, and where it was not."""
    outside = outside_calendar(value.to_physical(), kind)
    return pl.when(~outside).then(value), outside


def days_of(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """Returns the days since 1970 of a valid date, in 64 bits (the algorithm `days_from_civil` of Howard Hinnant)."""
    shifted = year - (month <= 2).cast(pl.Int64)
    era = shifted // 400
    of_era = shifted - era * 400
    moved = pl.when(month > 2).then(month - 3).otherwise(month + 9)
    of_year = (moved * 153 + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def is_date(year: pl.Expr, month: pl.Expr, day: pl.Expr) -> pl.Expr:
    """Returns whether the day exists in the years 1 to 9999."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    short = month.is_in([4, 6, 9, 11])
    longest = pl.when(month == 2).then(28 + leap.cast(pl.Int64)).when(short).then(30).otherwise(31)
    return year.is_between(1, 9999) & month.is_between(1, 12) & (day >= 1) & (day <= longest)


def date_of_text(text: pl.Expr) -> pl.Expr:
    """Parses `2026`, `2026-1`, `2026-1-31`, with anything after a space or T; NULL if the text is not a date."""
    groups = text.str.extract_groups(DATE_TEXT)
    year, month, day = (_number(groups, name, default) for name, default in (("y", None), ("mo", 1), ("d", 1)))
    return pl.when(is_date(year, month, day)).then(days_of(year, month, day)).cast(pl.Int32).cast(pl.Date)


def timestamp_of_text(text: pl.Expr, *, zone: bool = True) -> pl.Expr:
    """Parses a date, or a date and `12[:34[:56[.789]]]`, with Z, UTC, GMT or an offset. Returns NULL if the text is
    neither, or if the offset leads out of the years 1 to 9999.

    Without `zone` the offset is ignored, and the result is a `timestamp_ntz`.
    """
    groups = text.str.extract_groups(TIMESTAMP_TEXT)
    zone_text = groups.struct.field("zo")
    hour_text = zone_text.str.slice(0, 2).str.strip_chars_end(":")
    minute_text = zone_text.str.slice(hour_text.str.len_bytes()).str.strip_chars_start(":")
    hours, minutes = (part.cast(pl.Int64, strict=False).fill_null(0) for part in (hour_text, minute_text))
    sign = pl.when(groups.struct.field("zs") == "-").then(-1).otherwise(1)
    offset = sign * (hours * 60 + minutes)
    valid = (hours * 60 + minutes <= OFFSET_MINUTES_MAX) & (minutes < 60)
    micros = _micros(groups)
    if not zone:
        return pl.when(valid).then(micros).cast(TIMESTAMP_NTZ)
    moved = micros - offset * 60_000_000
    return pl.when(valid & ~outside_calendar(moved, MOMENT)).then(moved).cast(TIMESTAMP)


def _micros(groups: pl.Expr, others: Mapping[str, pl.Expr] | None = None) -> pl.Expr:
    """Returns the microseconds of the fields y mo d h mi s f; NULL if one is out of its range.

    `others`: fields that are written in another way, as numbers.
    """
    defaults = {"y": None, "mo": 1, "d": 1, "h": 0, "mi": 0, "s": 0}
    found = {name: _number(groups, name, default) for name, default in defaults.items() if name not in (others or {})}
    year, month, day, hour, minute, second = ({**found, **(others or {})}[name] for name in defaults)
    fraction = groups.struct.field("f").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64, strict=False)
    valid = is_date(year, month, day) & (hour < 24) & (minute < 60) & (second < 60)
    micros = days_of(year, month, day) * DAY + ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction.fill_null(0)
    return pl.when(valid).then(micros)


def _number(groups: pl.Expr, name: str, default: int | None) -> pl.Expr:
    """Returns a group as a number, or the default if the group took no part in the match (never if nothing matched)."""
    found = groups.struct.field(name).cast(pl.Int64, strict=False)
    return found if default is None else found.fill_null(default)


def text_of_timestamp(value: pl.Expr) -> pl.Expr:
    """Formats `2026-01-31 12:34:56.789`, without trailing zeros of the fraction."""
    text = value.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
    return text.str.strip_chars_end("0").str.strip_suffix(".")


def timestamp_by_pattern(text: pl.Expr, parts: Sequence[Part]) -> pl.Expr:
    """Parses a timestamp from text of exactly this pattern; NULL if the text does not match."""
    names = [*_FIELDS.values(), "f"]
    pattern = "".join(_part_regex(part) for part in parts)
    absent = [name for name in names if f"(?P<{name}>" not in pattern]
    pattern += "".join(f"(?P<{name}>)?" for name in dict.fromkeys(absent))
    groups = text.str.extract_groups(rf"\A{pattern}\z")
    letters = {part.field for part in parts}
    micros = _micros(groups, _written_otherwise(groups, letters))
    if letters & set(ZONES):
        moved = micros - _offset(groups, minutes="(?P<zm>" in pattern) * 60_000_000
        micros = pl.when(~outside_calendar(moved, MOMENT)).then(moved)
    return micros.cast(TIMESTAMP)


def _written_otherwise(groups: pl.Expr, letters: set[str]) -> dict[str, pl.Expr]:
    """Returns two-digit years, month names and 12-hour values as numbers; NULL if they are invalid."""
    others: dict[str, pl.Expr] = {}
    if "yy" in letters:
        others["y"] = _number(groups, "yy", None) + 2000
    if letters & {"MMM", "MMMM"}:
        name = groups.struct.field("name").str.slice(0, 3).str.to_lowercase()
        numbers = {month[:3].lower(): index for index, month in enumerate(MONTHS, 1)}
        others["mo"] = name.replace_strict(numbers, default=None, return_dtype=pl.Int64)
    if letters & {"h", "hh"}:
        hour = _number(groups, "half", None)
        afternoon = groups.struct.field("ap").str.to_lowercase() == "pm"
        others["h"] = pl.when(hour.is_between(1, 12)).then(hour % 12 + afternoon.cast(pl.Int64) * 12)
    return others


def _offset(groups: pl.Expr, *, minutes: bool) -> pl.Expr:
    """Returns minutes east of UTC; NULL if there are more than 18 hours."""
    hours, rest = _number(groups, "zh", 0), _number(groups, "zm", 0) if minutes else pl.lit(0)
    total = hours * 60 + rest
    valid = (total <= OFFSET_MINUTES_MAX) & (rest < 60) & groups.struct.field("zone").is_not_null()
    return pl.when(valid).then(pl.when(groups.struct.field("zs") == "-").then(-total).otherwise(total))


def _part_regex(part: Part) -> str:
    if not part.field:
        characters = "".join(f"\\x{{{ord(character):x}}}" for character in part.text)
        return f"(?i:{characters})"
    if part.field in ZONES:
        return _zone_regex(part.field)
    if part.field in ("MMM", "MMMM"):
        names = [month[:3] if part.field == "MMM" else month for month in MONTHS]
        return f"(?P<name>(?i:{'|'.join(names)}))"
    if part.field == "a":
        return "(?P<ap>(?i:am|pm))"
    name = {"yy": "yy", "h": "half", "hh": "half"}.get(part.field) or _FIELDS.get(part.field, "f")
    most = 18 if part.field in VARIABLE else len(part.field)
    digits = f"1,{most}" if part.field in VARIABLE or name == "f" else str(most)
    return f"(?P<{name}>[0-9]{{{digits}}})"


def _zone_regex(field: str) -> str:
    minutes = {"X": "(?P<zm>[0-9]{2})?", 3 * "X": ":(?P<zm>[0-9]{2})", "Z": "(?P<zm>[0-9]{2})"}
    offset = "(?P<zs>[+-])(?P<zh>[0-9]{2})" + minutes.get(field.upper(), "(?P<zm>[0-9]{2})")
    return f"(?P<zone>{'[Zz]|' if field[0] == 'X' else ''}{offset})"


_FORMATS = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d", "HH": "%H",
    "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "SSS": "%3f", "SSSSSS": "%6f",
    "E": "%a", "EE": "%a", "EEE": "%a", "EEEE": "%A", "a": "%p", "X": "Z", "XX": "Z", 3 * "X": "Z", "x": "+00",
    "xx": "+0000", "xxx": "+00:00", "Z": "+0000",
}  # fmt: skip
"""The formats of chrono, which Polars uses. The zone is always UTC."""


def text_by_pattern(value: pl.Expr, parts: Sequence[Part]) -> pl.Expr:
    """Formats a timestamp by this pattern."""
    plain = _FORMATS
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
