"""The pipelines of examples/nexmark run on the real operators, and give what SQLite finds in the same events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from examples.nexmark.generate import Event, generate, generate_side_input
from tests.depth import DEPTH
from tests.testing.nexmark import QUERIES, UPDATED, Row, load, plain, query
from tidegate.config.load import read_pipeline
from tidegate.ids import TopicPartition
from tidegate.plan.build import build_plan
from tidegate.testing.feed import ProducedRecord
from tidegate.testing.preview import Preview

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "nexmark"
EVENTS = 8_000 * DEPTH
SIDE_INPUT = 1_500
"""Rows of the side input: fewer than there are auctions, so some bids find none."""


OTHERS = {"q15": 20_000, "q23": 2_000}
"""Events of a query that needs two days, and of one whose output grows faster than its input."""


def events_of(name: str) -> list[Event]:
    return [*generate_side_input(SIDE_INPUT), *generate(OTHERS.get(name, EVENTS))]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return events_of("")


@pytest.fixture(scope="module")
def database(events: Sequence[Event]) -> Iterator[sqlite3.Connection]:
    with closing(load(events)) as opened:
        yield opened


def produce(event: Event) -> ProducedRecord:
    return ProducedRecord(
        TopicPartition(f"nexmark-{event.kind}", event.partition),
        str(event.key).encode(),
        json.dumps(event.value).encode(),
        round(event.arrived.timestamp() * 1000),
    )


def run(name: str, events: Sequence[Event], columns: Sequence[str]) -> list[Row]:
    """What the pipeline of a query writes; of updates the last ones."""
    loaded = read_pipeline(FOLDER / f"{name}.yaml", {})
    assert not loaded.problems
    topics = {source.topic for source in loaded.settings.sources.values()}
    skipped: list[str] = []
    preview = Preview(loaded, build_plan(loaded), skipped.append)
    shown = preview.run(produce(event) for event in events if f"nexmark-{event.kind}" in topics)
    values = [json.loads(one.record["value"]) for one in shown]
    assert not skipped
    assert not preview.late
    if name in UPDATED:
        values = list({tuple(value[column] for column in UPDATED[name]): value for value in values}.values())
    rows = [tuple(plain(one, value[one]) for one in columns) for value in values]
    return sorted(rows, key=json.dumps)


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
def test_a_pipeline_gives_what_sqlite_gives(name: str, events: Sequence[Event], database: sqlite3.Connection) -> None:
    if name in OTHERS:
        events = events_of(name)
        with closing(load(events)) as own:
            columns, expected = query(own, name)
    else:
        columns, expected = query(database, name)
    assert len(expected) > 1
    assert run(name, events, columns) == expected


def test_every_example_has_a_query() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(QUERIES)


def test_events_are_the_same_for_a_seed() -> None:
    assert list(generate(200)) == list(generate(200)) != list(generate(200, seed=2))
