"""Comparison of output with expectations, as data: which records agree, which do not, and in which fields. Pure."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from tidegate.config.cases import ExpectedSettings
from tidegate.config.values import derive_scalar
from tidegate.formats import keys
from tidegate.formats.plain import as_float, header_to_plain, render_number, text_or_base64
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_ids import bare_options
from tidegate.formats.schema_keys import key_to_plain
from tidegate.formats.schemas import FormatOptions
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.testing.parts import WrittenRecord

FIELDS: Final = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition", "topic")
ALIGNED_MAX: Final = 400_000
"""Maximum number of record pairs compared for the best alignment. Beyond it, records are compared by position."""

Record = dict[str, Any]
"""Fields of a record by their names in the file. An expected record has only those in the file."""


class Line(msgspec.Struct, frozen=True):
    """A line of a difference: a record that agrees (" "), is missing ("-"), or was not expected ("+").

    If the record replaces a missing one, `fields` lists the paths that differ, with the expected and the actual value.
    """

    sign: str
    record: Record
    fields: tuple[tuple[str, Any, Any], ...] = ()


Difference = list[Line]

_ABSENT: Final = object()
_NUMBERS: Final = (int, float, Decimal)


class JsonText(str):
    """A value as JSON, with the digits and the field order that a sink has written."""

    __slots__ = ()


def derive_records(written: Sequence[WrittenRecord], sink: SinkOperator) -> list[Record]:
    """Returns records in readable form: values decoded by the sink's format, and bytes that are not text in base64."""
    return [_record(one, sink, FORMATS[sink.format].to_plain) for one in written]


def derive_written(written: Sequence[WrittenRecord], sink: SinkOperator) -> list[Record]:
    """Returns records like `derive_records`, but with values that are not decoded: each is a JsonText."""
    return [_record(one, sink, lambda *one: JsonText(FORMATS[sink.format].to_json(*one).decode())) for one in written]


def _record(one: WrittenRecord, sink: SinkOperator, read: Callable[[bytes, FormatOptions], Any]) -> Record:
    record: Record = {}
    record.update(_key_of(one.key, sink))
    try:
        record["value"] = None if one.value is None else read(one.value, bare_options(sink.options))
    except ValueError:
        record.update(text_or_base64("value", one.value))
    if one.headers:
        record["headers"] = [header_to_plain(name, data) for name, data in one.headers]
    if one.timestamp_ms is not None:
        record["timestamp"] = one.timestamp_ms
    if one.partition is not None:
        record["partition"] = one.partition
    if one.topic is not None:
        record["topic"] = one.topic
    return record


def _key_of(key: bytes | None, sink: SinkOperator) -> Record:
    """Returns the key as a field; a key in a format with schemas as plain JSON data."""
    if key is None or sink.key_format != keys.AVRO:
        return text_or_base64("key", key)
    return {"key": key_to_plain(key, bare_options(sink.key_options))}


def derive_expected(one: ExpectedSettings) -> Record:
    """Returns the fields that the file sets."""
    found: Record = {}
    for name in FIELDS:
        if name in one.written:
            value = getattr(one, name)
            if isinstance(value, bytes):
                value = base64.b64encode(value).decode()
            elif name == "headers":
                value = [header_to_plain(header, data) for header, data in value or ()]
            found[name] = value
    return found


def agrees(expected: Record, actual: Record) -> bool:
    """Returns whether all expected fields agree."""
    return all(is_same(value, _field(actual, name)) for name, value in expected.items())


def _field(actual: Record, name: str) -> Any:
    """Returns a field in the form in which it is requested."""
    if name in actual:
        return actual[name]
    if name == "headers":
        return []
    if name in ("timestamp", "partition", "topic"):
        return None
    value = actual.get(name.partition("_")[0], _ABSENT)
    if name.endswith("_base64") and isinstance(value, str):
        return base64.b64encode(value.encode()).decode()
    return _ABSENT


def is_same(one: Any, other: Any) -> bool:
    """Returns whether two values are equal as data.

    5 and 5.0 are the same number, true is not a number, and fields of an object have no order. A decimal from the
    output equals the number that is written in the file: `12.5` matches 12.50, and the text `"12.50"` matches its
    digits.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return _is_same_number(one, other)
    return bool(one == other)


def _is_same_number(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return bool(_digits_of(one) == _digits_of(other))
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS) and float(one) == float(other)
    return bool(one == other)


def _digits_of(value: Any) -> Any:
    """Returns the digits of a number or of its text, and any other value unchanged."""
    try:
        return Decimal(value).as_tuple() if isinstance(value, str | Decimal) else value
    except InvalidOperation:
        return value


def compare(expected: Sequence[Record], actual: Sequence[Record], *, ordered: bool) -> Difference | None:
    """Returns the difference, or None if the records agree.

    `ordered`: in order per key and topic; otherwise in any order.
    """
    if ordered:
        return None if _matches_in_order(expected, actual) else _difference_by_key(expected, actual)
    partners = _match(expected, actual)
    if len(expected) == len(actual) and None not in partners:
        return None
    matched = set(partners)
    missing = [one for one, partner in zip(expected, partners, strict=True) if partner is None]
    added = [one for place, one in enumerate(actual) if place not in matched]
    return [*(Line(" ", actual[p]) for p in partners if p is not None), *_changed(missing, added)]


def compare_runs(before: Sequence[Record], after: Sequence[Record], *, ordered: bool) -> Difference | None:
    """Compares two runs of a case in every field. Absent fields only equal absent fields."""
    found = compare([_UNSET | one for one in before], after, ordered=ordered)
    return found and [Line(one.sign, _without_unset(one.record), one.fields) for one in found]


_UNSET: Final[Record] = {"headers": [], "timestamp": None, "partition": None, "topic": None}
"""Fields as they are compared where a record does not have them."""


def _without_unset(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in _UNSET or value != _UNSET[name]}


def _key(record: Record) -> Any:
    return record.get("key_base64", record.get("key"))


def _lane(record: Record) -> Any:
    """Returns the lane of a record. Records of one lane have an order."""
    return _key(record), record.get("topic")


def _names_key(record: Record) -> bool:
    return "key" in record or "key_base64" in record


def _matches_in_order(expected: Sequence[Record], actual: Sequence[Record]) -> bool:
    """Matches each expected record with the oldest agreeing one among the next records of all keys."""
    if len(expected) != len(actual):
        return False
    waiting: dict[Any, list[int]] = {}
    for place in reversed(range(len(actual))):
        waiting.setdefault(_lane(actual[place]), []).append(place)
    heads = {places[-1] for places in waiting.values()}
    for one in expected:
        found = next((place for place in sorted(heads) if agrees(one, actual[place])), None)
        if found is None:
            return False
        places = waiting[_lane(actual[found])]
        heads.discard(places.pop())
        if places:
            heads.add(places[-1])
    return True


def _difference_by_key(expected: Sequence[Record], actual: Sequence[Record]) -> Difference:
    """Aligns each key separately if all expected records name theirs, otherwise all records together."""
    if not all(map(_names_key, expected)):
        return _align(expected, actual)
    lines: Difference = []
    for key in dict.fromkeys([*map(_key, expected), *map(_key, actual)]):
        lines += _align([one for one in expected if _key(one) == key], [one for one in actual if _key(one) == key])
    return lines


def _align(expected: Sequence[Record], actual: Sequence[Record]) -> Difference:
    """Aligns by the longest common subsequence; the records between its members are missing or added."""
    lines: Difference = []
    done, came = 0, 0
    for place, partner in [*_common(expected, actual), (len(expected), len(actual))]:
        lines += _changed(expected[done:place], actual[came:partner])
        if place < len(expected):
            lines.append(Line(" ", actual[partner]))
        done, came = place + 1, partner + 1
    return lines


def _common(expected: Sequence[Record], actual: Sequence[Record]) -> list[tuple[int, int]]:
    rows, columns = len(expected), len(actual)
    if rows * columns > ALIGNED_MAX:
        return [(at, at) for at in range(min(rows, columns)) if agrees(expected[at], actual[at])]
    lengths = [[0] * (columns + 1) for _ in range(rows + 1)]
    same = [[agrees(one, other) for other in actual] for one in expected]
    for row in reversed(range(rows)):
        for column in reversed(range(columns)):
            lengths[row][column] = (
                lengths[row + 1][column + 1] + 1
                if same[row][column]
                else max(lengths[row + 1][column], lengths[row][column + 1])
            )
    found, row, column = [], 0, 0
    while row < rows and column < columns:
        if same[row][column]:
            found.append((row, column))
            row, column = row + 1, column + 1
        elif lengths[row + 1][column] >= lengths[row][column + 1]:
            row += 1
        else:
            column += 1
    return found


def _changed(missing: Sequence[Record], added: Sequence[Record]) -> Difference:
    """Returns the missing records, each followed by the added one that replaces it, if any."""
    lines: Difference = []
    for place in range(max(len(missing), len(added))):
        if place < len(missing):
            lines.append(Line("-", missing[place]))
        if place < len(added):
            fields = tuple(find_fields(missing[place], added[place])) if place < len(missing) else ()
            lines.append(Line("+", added[place], fields))
    return lines


def find_fields(expected: Record, actual: Record) -> list[tuple[str, Any, Any]]:
    """Returns the paths of the fields that differ, such as `value.net`, with both values.

    Absent fields have a special value.
    """
    found: list[tuple[str, Any, Any]] = []
    for name, value in expected.items():
        _descend(name, value, _field(actual, name), lambda *one: found.append(one))
    return found


def _descend(path: str, one: Any, other: Any, report: Callable[[str, Any, Any], None]) -> None:
    if is_same(one, other):
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            _descend(f"{path}.{name}", one.get(name, _ABSENT), other.get(name, _ABSENT), report)
        return
    report(path, one, other)


def is_absent(value: object) -> bool:
    """Returns whether a value stands for an absent field."""
    return value is _ABSENT


def _match(expected: Sequence[Record], actual: Sequence[Record]) -> list[int | None]:
    """Matches as many expected records as possible with actual ones (augmenting paths)."""
    choices = [[place for place, other in enumerate(actual) if agrees(one, other)] for one in expected]
    taken: dict[int, int] = {}
    for start in range(len(expected)):
        _augment(start, choices, taken)
    partners: list[int | None] = [None] * len(expected)
    for place, one in taken.items():
        partners[one] = place
    return partners


def _augment(start: int, choices: Sequence[Sequence[int]], taken: dict[int, int]) -> None:
    """Finds a free partner for one record, possibly by moving others. Breadth first, without recursion."""
    came_from: dict[int, int] = {}
    waiting = [start]
    for one in waiting:
        for place in choices[one]:
            if place in came_from:
                continue
            came_from[place] = one
            if place in taken:
                waiting.append(taken[place])
                continue
            free: int | None = place
            while free is not None:  # back along the path: each takes the position that it was reached by
                owner = came_from[free]
                before = next((other for other, who in taken.items() if who == owner), None)
                taken[free] = owner
                free = before
            return


# -- records as single-line YAML, as a pipeline file accepts them ------------------------------------------------------

_PLAIN: Final = re.compile(r"[A-Za-z_](?:[A-Za-z0-9_./@+-]| (?=[A-Za-z0-9_]))*", re.ASCII)
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d(T[0-9:.]+Z)?", re.ASCII)
_KEY_WIDTH_MAX: Final = 100
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def render_record(record: dict[str, Any]) -> str:
    """Renders the fields of a record by their names in the file, with a readable timestamp."""
    timestamp = record.get("timestamp")
    shown = record if not isinstance(timestamp, int) else {**record, "timestamp": render_moment(timestamp)}
    return render_flow(shown)


def render_moment(at_ms: int) -> str | int:
    """Renders a timestamp in UTC, or returns the number if no calendar covers it."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=at_ms)
    except OverflowError:
        return at_ms
    return moment.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds").replace("+00:00", "Z")


def render_flow(value: Any) -> str:
    """Renders any JSON value. A number whose digits YAML would not keep, such as 12.50, becomes text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_render_key(name)}: {render_flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(render_flow, value))}]"
    if isinstance(value, str):
        return _render_text(value)
    if isinstance(value, Decimal):
        number = as_float(value)
        return _quote(render_number(value)) if number is None else json.dumps(number)
    return json.dumps(value)


def _render_key(name: str) -> str:
    """Renders a key. Keys are always text, and variables are not replaced in them."""
    return name if _PLAIN.fullmatch(name) and len(name) <= _KEY_WIDTH_MAX else _quote(name)


def _render_text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) or _TIMESTAMP.fullmatch(text)
    if plain and isinstance(derive_scalar(text), str):
        return text
    return _quote(text.replace("${", "$${"))


def _quote(text: str) -> str:
    """Renders text in double quotes, with YAML escapes for characters that cannot be printed."""
    return '"' + "".join(map(_escape, text)) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\x{code:02X}")
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"
