"""Change events that Debezium tests its own reader with: rows of a table, and what is no change event."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.contract import Decoded
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.debezium import FORMAT
from tidegate.formats.row_kinds import BEFORE
from tidegate.formats.schemas import FormatOptions, KnownSchemas

HERE: Final = Path(__file__).with_name("debezium")
TABLE: Final = {"id": BIGINT, "first_name": STRING, "last_name": STRING, "email": STRING}
ANNE: Final = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
EVENTS: Final = {
    "serde-without-schema": "c",
    "serde-with-schema": "c",
    "serde-update": "u",
    "serde-unknown-property": "u",
}
NONE: Final = ("serde-unwrapped",)


def decode(name: str, *, row_kinds: bool = False) -> Decoded:
    declared = tuple(FORMAT.read_columns(TABLE).items())
    decoder = FORMAT.decoder(declared, declared, FormatOptions(row_kinds=row_kinds), KnownSchemas())
    found = decoder.decode(messages_of([(HERE / f"{name}.json").read_bytes()]))
    assert isinstance(found, Decoded)
    return found


def test_the_events_are_all_here() -> None:
    assert {file.stem for file in HERE.glob("*.json")} == {*EVENTS, *NONE}


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_the_row_after_it(name: str) -> None:
    found = decode(name)
    assert list(found.failures) == []
    (row,) = found.frame.to_dicts()
    assert {column: row[column] for column in TABLE} == ANNE
    assert row["_op"] == EVENTS[name]


@pytest.mark.parametrize("name", [name for name, op in EVENTS.items() if op == "u"])
def test_an_update_has_the_row_before_it(name: str) -> None:
    found = decode(name, row_kinds=True)
    assert list(found.failures) == []
    (row,) = found.frame.to_dicts()
    assert {column: row[f"{BEFORE}{column}"] for column in TABLE} == {**ANNE, "first_name": "Anne-Marie"}


@pytest.mark.parametrize("name", NONE)
def test_a_row_without_the_envelope_is_a_bad_record(name: str) -> None:
    found = decode(name)
    assert found.frame.height == 0
    assert [one.kind for one in found.failures] == [FailureKind.INCOMPLETE_CHANGE]
