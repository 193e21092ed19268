"""A randomly changing table, the Debezium events about it, and the expected totals.

`STEPS` and `SINKS` belong in a pipeline file. The totals are computed from the final table without any code of the
engine.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any, Final

import polars as pl

DOUBLES: Final = frozenset({"price", "mean"})
Event = dict[str, Any]
Row = dict[str, Any]
View = dict[str, Any]
"""The newest value by record key."""

SOURCE: Final[Mapping[str, Any]] = {
    "format": "debezium",
    "schema": {"id": "bigint", "region": "string", "cents": "bigint", "price": "double", "open": "boolean"},
}
STEPS: Final[list[Mapping[str, Any]]] = [
    {"name": "open_rows", "from": "table", "where": "open"},
    {
        "name": "regions",
        "from": "open_rows",
        "key": "region",
        "aggregate": {
            "n": "count(*)",
            "net": "sum(cents)",
            "most": "max(cents)",
            "mean": "avg(price)",
            "kinds": "count(distinct cents)",
        },
    },
    {"name": "large", "from": "regions", "where": "n > 3"},
    {"name": "sizes", "from": "regions", "key": "n", "aggregate": {"regions": "count(*)", "least": "min(net)"}},
]
SINKS: Final[Mapping[str, tuple[str, str]]] = {
    "regions": ("regions", "region"),
    "large": ("large", "region"),
    "sizes": ("sizes", "n"),
    "copy": ("open_rows", "id"),
}
"""The step that each sink reads, and its key."""


def make_sinks(topics: Mapping[str, str]) -> dict[str, Any]:
    """Returns the sinks, under names that no step has."""
    return {
        f"{name}_out": {
            "from": reads,
            "topic": topics[name],
            "key": key,
            "on_null": {"column": "_deleted"},
        }
        for name, (reads, key) in SINKS.items()
    }


def draw_history(draw: random.Random, count: int) -> tuple[dict[int, Row], list[tuple[int, Event | None]]]:
    """Returns the final table, and its events with the keys of their rows. A tombstone follows each delete."""
    table: dict[int, Row] = {}
    events: list[tuple[int, Event | None]] = []

    def row_of(number: int) -> Row:
        region = draw.choice(["n", "s", "e", "w", ""])
        cents = draw.choice([None, draw.randrange(1000)])
        return {"id": number, "region": region, "cents": cents, "price": draw.random(), "open": draw.random() < 0.7}

    for number in range(count):
        kind = draw.random()
        if not table or kind < 0.35:
            table[number] = row_of(number)
            events.append((number, {"op": draw.choice("cr"), "before": None, "after": table[number]}))
            continue
        of = draw.choice(list(table))
        before = table.pop(of)
        if kind < 0.6:
            events += [(of, {"op": "d", "before": before, "after": None}), (of, None)]
        else:
            table[of] = row_of(of)
            events.append((of, {"op": "u", "before": before, "after": table[of]}))
    return table, events


def expected_view(table: Mapping[int, Row]) -> dict[str, View]:
    """Returns what the topics must contain in the end."""
    schema = {"id": pl.Int64, "region": pl.String, "cents": pl.Int64, "price": pl.Float64, "open": pl.Boolean}
    rows = pl.DataFrame(list(table.values()), schema=schema).filter("open")
    regions = rows.group_by("region").agg(
        n=pl.len().cast(pl.Int64),
        net=pl.when(pl.col("cents").count() > 0).then(pl.col("cents").sum()),
        most=pl.col("cents").max(),
        mean=pl.col("price").mean().round(9),
        kinds=pl.col("cents").drop_nulls().n_unique().cast(pl.Int64),
    )
    sizes = regions.group_by("n").agg(regions=pl.len().cast(pl.Int64), least=pl.col("net").min())
    return {
        "regions": _by(regions, "region"),
        "large": _by(regions.filter(pl.col("n") > 3), "region"),
        "sizes": _by(sizes, "n"),
        "copy": _by(rows, "id"),
    }


def _by(frame: pl.DataFrame, key: str) -> View:
    return {str(row[key]): row for row in frame.to_dicts()}


def newest(records: Iterable[tuple[str | None, Row | None]]) -> View:
    """Returns the newest record of each key, as a reader would keep it. Records are in the order of their topic."""
    view: View = {}
    for key, value in records:
        if value is None:
            view.pop(str(key), None)
            continue
        row = {name: float(field) if name in DOUBLES else field for name, field in value.items() if name != "_op"}
        row |= {"mean": round(row["mean"], 9)} if "mean" in row else {}
        view[str(key)] = row
    return view
