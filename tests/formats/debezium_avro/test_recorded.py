"""Change events that a real Debezium wrote in Avro, compared with the rows that the real PostgreSQL has then.

`python -m tests.compatibility.debezium --stories avro --record` writes `../debezium/avro.jsonl` again.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.compatibility.debezium.avro import OUTSIDE, native_columns
from tests.compatibility.debezium.kinds import KINDS, rows_of
from tests.formats.batches import messages_of
from tests.formats.test_debezium_recorded import left_of, newest, texts_of
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import Schema
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.debezium.avro_decoder import change_decoder
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

FORMAT: Final = FORMATS["debezium-avro"]
FILE: Final = Path(__file__).parents[1] / "debezium" / "avro.jsonl"
both = pytest.mark.usefixtures("reader_name")


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, FILE.read_text("utf-8").splitlines()))


def schemas() -> dict[int, SchemaText]:
    return {one["id"]: SchemaText(SchemaKind.AVRO, one["schema"], id=one["id"]) for one in recorded() if "id" in one}


def columns_of(table: Mapping[str, str]) -> Schema:
    return {name: derive_type(kind) for name, kind in table.items()}


def decode(topic: str, columns: Schema, *, row_kinds: bool = False) -> Decoded:
    declared = tuple(FORMAT.read_columns(columns).items())
    decoder = change_decoder(declared, declared, FormatOptions(row_kinds=row_kinds), KnownSchemas(schemas()))
    found = decoder.decode(
        messages_of([base64.b64decode(one["value"]) for one in recorded() if one.get("topic") == topic])
    )
    assert isinstance(found, Decoded)
    return found


def rows(table: str, *left_out: str) -> list[str]:
    return rows_of([one["row"] for one in recorded() if one.get("table") == table], left_out)


@both
def test_the_newest_rows_are_those_of_the_table() -> None:
    columns = columns_of(native_columns("kinds"))
    found = decode("kinds", columns)
    assert list(found.failures) == []
    assert len(rows("kinds")) == 5
    assert texts_of(newest(found.frame), columns) == rows("kinds")


@both
def test_what_is_added_less_what_is_taken_back_is_the_table() -> None:
    columns = columns_of({name: kind for name, kind in native_columns("whole").items() if name != "more"})
    found = decode("whole", columns, row_kinds=True)
    assert list(found.failures) == []
    assert left_of(found.frame, columns) == Counter(rows("whole", "more"))


@both
def test_large_values_that_a_change_did_not_touch_are_not_there() -> None:
    columns = columns_of(native_columns("thin"))
    found = decode("thin", columns)
    reason = "INCOMPLETE_CHANGE: the database's log does not contain the value (with `REPLICA IDENTITY FULL` it does)"
    assert [str(one) for one in found.failures] == [f"{reason} - at `after.long`"] * 2
    assert texts_of(newest(found.frame), columns) == rows("thin")
    taken = decode("thin", columns, row_kinds=True)
    assert {str(one.kind) for one in taken.failures} == {"INCOMPLETE_CHANGE"}
    assert len(taken.failures) == 4, "updates have no row before them"


@both
def test_values_outside_the_calendar_are_named() -> None:
    found = decode("outside", columns_of(OUTSIDE))
    late = "is not a timestamp of the years 1 to 9999 - at `after.ts`"
    no_text = "WRONG_TYPE: Invalid RFC3339 encoded datetime, got the text"
    assert [str(one) for one in found.failures] == [
        "OUT_OF_RANGE: -622191234 days since 1970 are not a date from 1 to 9999 - at `after.d`",  # infinity
        f"OUT_OF_RANGE: {-(2**63)} {late}",  # -infinity
        f"{no_text} 'infinity' - at `after.tstz`",
        f"OUT_OF_RANGE: -210863520000000000 {late}",
        f"OUT_OF_RANGE: 253402300800000000 {late}",
        f"{no_text} '+294276-12-31T00:00:00.000000Z' - at `after.tstz`",
    ]
    assert found.frame["n"].to_list() == [None], "NaN, of which Debezium warns"


def test_the_columns_of_an_envelope_are_those_of_its_table() -> None:
    texts = [one for one in schemas().values() if "native.public.kinds" in one.text]
    (text,) = texts
    found = {name: str(kind) for name, kind in FORMAT.schema_columns(text).items()}
    others = {
        "nn": "struct<scale: int, value: binary>",
        "m": "decimal(38,2)",
        "ti3": "int",
        "po": "struct<x: double, y: double, wkb: binary, srid: int>",
        "_deleted": "boolean",
        "_op": "string",
    }
    assert found == {name: kind for name, (_, kind) in KINDS.items()} | others
