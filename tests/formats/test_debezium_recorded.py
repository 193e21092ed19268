"""Change events that a real Debezium wrote about a real PostgreSQL, compared with the rows that PostgreSQL has then.

`python -m tests.compatibility.debezium --stories types --record` writes `debezium/*.jsonl` again.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from tests.compatibility.debezium.kinds import MODES, rows_of, schema_of, written_as
from tests.formats.batches import messages_of
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import Schema
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.debezium import FORMAT
from tidegate.formats.registry import FORMATS
from tidegate.formats.row_kinds import BEFORE, ROW_KIND, UPDATE_AFTER
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas

HERE: Final = Path(__file__).with_name("debezium")


@cache
def recorded(mode: str) -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, (HERE / f"{mode}.jsonl").read_text("utf-8").splitlines()))


def values_of(mode: str, topic: str) -> list[bytes | None]:
    values = [one["value"] for one in recorded(mode) if one.get("topic") == topic]
    assert values
    return [None if value is None else value.encode() for value in values]


def columns_of(table: str, mode: str) -> Schema:
    return {name: derive_type(kind) for name, kind in schema_of(table, mode).items()}


def decode(mode: str, topic: str, columns: Schema, *, row_kinds: bool = False) -> Decoded:
    """As a source does; tombstones are left out before."""
    said = written_as(topic, mode)
    units = said.get("timestamps", "")
    options = FormatOptions(
        timestamps=units if isinstance(units, str) else "",
        timestamps_of=() if isinstance(units, str) else tuple(units.items()),
        decimals=said.get("decimals", ""),
        row_kinds=row_kinds,
    )
    declared = tuple(FORMAT.read_columns(columns).items())
    values = [value for value in values_of(mode, topic) if value is not None]
    found = FORMAT.decoder(declared, declared, options, KnownSchemas()).decode(messages_of(values))
    assert isinstance(found, Decoded)
    return found


def texts_of(frame: pl.DataFrame, columns: Schema) -> list[str]:
    """The rows as a JSON sink writes them."""
    written = tuple(columns.items())
    encoded = FORMATS["json"].encoder(written, NO_OPTIONS).encode(frame.select(list(columns)))
    return rows_of(encoded.columns["value"].to_list())


def newest(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.unique("id", keep="last", maintain_order=True).filter(~pl.col("_deleted"))


@pytest.mark.parametrize("mode", MODES)
def test_the_newest_rows_are_those_of_the_table(mode: str) -> None:
    columns = columns_of("kinds", mode)
    found = decode(mode, "kinds", columns)
    assert list(found.failures) == []
    rows = [one["row"] for one in recorded(mode) if one.get("table") == "kinds"]
    if mode == "wrapped":  # of which not all are kept
        rows = [row for row in rows if json.loads(row)["id"] in (1, 3)]
    assert len(rows) >= 2
    assert texts_of(newest(found.frame), columns) == rows_of(rows)


TRUNCATES: Final = "UNSUPPORTED_CHANGE: the event `t` truncates the table and has no row - at `$.op`"
REMEDY: Final = "(PostgreSQL writes it with `REPLICA IDENTITY FULL`, MySQL with `binlog_row_image=FULL`)"
UNAVAILABLE: Final = "the database's log does not contain the value (with `REPLICA IDENTITY FULL` it does)"


def left_of(frame: pl.DataFrame, columns: Schema) -> Counter[str]:
    """Rows that were added, less those that were taken back, of which there are some, each added before."""
    deleted = pl.col("_deleted")
    added = Counter(texts_of(frame.filter(~deleted), columns))
    taken = Counter(texts_of(frame.filter(deleted), columns))
    updates = frame.filter(pl.col(ROW_KIND) == UPDATE_AFTER)
    taken += Counter(texts_of(updates.select(pl.col(f"{BEFORE}{name}").alias(name) for name in columns), columns))
    assert min(updates.height, taken.total()) >= 1
    assert all(added[row] >= count for row, count in taken.items())
    return added - taken


@pytest.mark.parametrize("table", ["whole", "keyless"])
def test_what_is_added_less_what_is_taken_back_is_the_table(table: str) -> None:
    columns = {name: kind for name, kind in columns_of(table, "plain").items() if name != "more"}
    found = decode("plain", table, columns, row_kinds=True)
    assert list(found.failures) == []
    rows = [one["row"] for one in recorded("plain") if one.get("table") == table]
    assert left_of(found.frame, columns) == Counter(rows_of(rows, {"more"}))


def failures_of(table: str, columns: Schema, *, row_kinds: bool) -> dict[str, list[str]]:
    """By the operation of the event and the row's id."""
    found = decode("plain", table, columns, row_kinds=row_kinds)
    events = [json.loads(value) for value in values_of("plain", table) if value is not None]
    failures: dict[str, list[str]] = {}
    for one in found.failures:
        row = events[one.row]["after"] or events[one.row]["before"] or {}
        failures.setdefault(str(one), []).append(f"{events[one.row]['op']}{row.get('id', '')}")
    return failures


def test_without_the_full_identity_values_and_rows_are_missing() -> None:
    columns = {name: kind for name, kind in columns_of("thin", "plain").items() if name != "more"}
    moved = ["u2", "c3"]  # with the value outside the row as it was
    unavailable = f"INCOMPLETE_CHANGE: {UNAVAILABLE} - at `$.after.long`"
    assert failures_of("thin", columns, row_kinds=False) == {unavailable: moved, TRUNCATES: ["t"]}
    no_before = f"INCOMPLETE_CHANGE: the event `u` has no row in `before`, which must be retracted {REMEDY}"
    assert failures_of("thin", columns, row_kinds=True) == {
        f"{no_before} - at `$.before`": ["u1", "u2", "u4"],
        unavailable: ["c3"],
        TRUNCATES: ["t"],
    }
    del columns["long"]
    found = decode("plain", "thin", columns)
    assert [str(one) for one in found.failures] == [TRUNCATES]
    assert found.frame.filter(pl.col("_deleted"))["name"].to_list() == [None] * 3  # the key alone


def test_a_column_that_is_added_later_is_null_until_then() -> None:
    columns = columns_of("whole", "plain")
    found = decode("plain", "whole", columns)
    assert list(found.failures) == []
    assert found.frame["more"].to_list()[:4] == [None] * 4
    rows = [one["row"] for one in recorded("plain") if one.get("table") == "whole"]
    assert texts_of(newest(found.frame), columns) == rows_of(rows)
    lacking = f"INCOMPLETE_CHANGE: the row in `before` must be retracted, but has no `more` {REMEDY}"
    assert failures_of("whole", columns, row_kinds=True) == {f"{lacking} - at `$.before.more`": ["d2", "d1"]}
    events = [json.loads(value) for value in values_of("plain", "whole") if value is not None]
    (update,) = [one for one in events if one["op"] == "u" and one["after"]["id"] == 4]
    assert update["before"]["more"] == "more"  # the default, although there was no event of it


def test_what_no_column_holds_is_a_bad_record() -> None:
    columns = {
        name: derive_type(kind)
        for name, kind in {"id": "int", "d": "date", "ts": "timestamp_ntz", "tstz": "timestamp"}.items()
    }
    found = decode("isostring", "outside", columns)
    assert [one.row for one in found.failures] == [0, 1, 2, 3, 4, 5]
    number = {"id": derive_type("int"), "n": derive_type("decimal(10,2)")}
    assert (
        decode("isostring", "outside", number)
        .failures[0]
        .message.startswith("Expected `decimal(10,2)`, got the text 'NaN'")
    )
    assert decode("plain", "outside", number).frame["n"].to_list() == [None] * 7  # so Debezium writes NaN as bytes


@pytest.mark.parametrize(
    ("mode", "topic", "reason"),
    [
        ("plain", "message", "UNSUPPORTED_CHANGE: the event `m` is a logical message and has no row - at `$.op`"),
        (
            "wrapped",
            "transaction",
            "INCOMPLETE_CHANGE: the record has no `op`, so it is not a change event - at `$.payload`",
        ),
    ],
)
def test_topics_next_to_those_of_tables_have_no_rows(mode: str, topic: str, reason: str) -> None:
    found = decode(mode, topic, {"id": derive_type("int")})
    assert found.frame.height == 0
    assert {str(one) for one in found.failures} == {reason}
