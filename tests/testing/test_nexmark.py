"""The pipelines of examples/nexmark run on the real operators, and give what SQLite finds in the same events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from examples.nexmark.generate import Event, generate
from tests.testing.nexmark import QUERIES, UPDATED, Row, load, milliseconds, query
from tidegate.config.load import read_pipeline
from tidegate.ids import TopicPartition
from tidegate.plan.build import build_plan
from tidegate.testing.feed import ProducedRecord
from tidegate.testing.preview import Preview

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "nexmark"
EVENTS = 20_000
TIMES = frozenset({"dateTime", "starttime", "endtime"})


@pytest.fixture(scope="module")
def bids() -> list[Event]:
    return [event for event in generate(EVENTS) if event.kind == "bids"]


@pytest.fixture(scope="module")
def produced(bids: Sequence[Event]) -> list[ProducedRecord]:
    return [
        ProducedRecord(
            TopicPartition("nexmark-bids", event.partition),
            str(event.key).encode(),
            json.dumps(event.value).encode(),
            round(event.arrived.timestamp() * 1000),
        )
        for event in bids
    ]


@pytest.fixture(scope="module")
def database(bids: Sequence[Event]) -> sqlite3.Connection:
    return load(bids)


def plain(column: str, value: Any) -> Any:
    """As SQLite has it: times in milliseconds."""
    return milliseconds(value) if column in TIMES else value


def run(name: str, records: Sequence[ProducedRecord], columns: Sequence[str]) -> list[Row]:
    """What the pipeline of a query writes; of updates the last ones."""
    loaded = read_pipeline(FOLDER / f"{name}.yaml", {})
    assert not loaded.problems
    skipped: list[str] = []
    shown = Preview(loaded, build_plan(loaded), skipped.append).run(records)
    values = [json.loads(one.record["value"]) for one in shown]
    assert not skipped
    if name in UPDATED:
        values = list({tuple(value[column] for column in UPDATED[name]): value for value in values}.values())
    rows = [tuple(plain(one, value[one]) for one in columns) for value in values]
    return sorted(rows, key=json.dumps)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_pipeline_gives_what_sqlite_gives(
    name: str, produced: Sequence[ProducedRecord], database: sqlite3.Connection
) -> None:
    columns, expected = query(database, name)
    assert len(expected) > 1
    assert run(name, produced, columns) == expected


def test_every_example_has_a_query() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(QUERIES)


def test_events_are_the_same_for_a_seed() -> None:
    assert list(generate(200)) == list(generate(200)) != list(generate(200, seed=2))
