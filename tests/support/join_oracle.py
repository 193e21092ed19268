"""What the campaign of joins must have written, by DuckDB's SQL over the rows that are not late, without the engine.

A join of the campaign is a row of `JOINS`: its settings in the pipeline file, and the SQL of the same meaning. A row of
an output is a pair of ids; the id of a missing side is NULL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb

from tests.support.join_input import WINDOW_MS, Entry, JoinInput, Side, find_late

Pair: TypeAlias = tuple[int | None, int | None]
SIDES: Final[tuple[Side, Side]] = ("orders", "payments")


class Join(NamedTuple):
    """One join, as settings and as SQL over `o` and `p`."""

    settings: Mapping[str, Any]
    kind: str
    """The SQL join."""
    condition: str

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that an output row has."""
        return ("order",) if self.settings["rows"] in {"semi", "anti"} else ("order", "payment")

    def sql(self) -> str:
        """Returns the query over tables of the rows that are not late."""
        suffix = "_windows" if "window" in self.settings else ""
        ids = ", ".join(f"{side[0]}.id" for side in self.sides)
        tables = f"orders{suffix} o {self.kind} JOIN payments{suffix} p"
        return f"SELECT {ids} FROM {tables} ON o.account = p.account AND {self.condition}"


def _between(before_s: int, after_s: int) -> str:
    return f"p.at BETWEEN o.at - {before_s * 1000} AND o.at + {after_s * 1000}"


def _within(before_s: int, after_s: int) -> dict[str, Any]:
    return {"within": {"before": f"{before_s}s", "after": f"{after_s}s"}}


_LARGE: Final = ("payment.amount * 2 > order.amount", " AND p.amount * 2 > o.amount")
_ENOUGH: Final = ("payment.amount > 5000", " AND p.amount > 5000")
_TUMBLING: Final = f"o.at // {WINDOW_MS} = p.at // {WINDOW_MS}"
_WINDOW: Final = {"window": {"tumbling": f"{WINDOW_MS}ms"}}
JOINS: Final[Mapping[str, Join]] = {
    "inner_pairs": Join({"rows": "inner", **_within(2, 5), "where": _LARGE[0]}, "INNER", _between(2, 5) + _LARGE[1]),
    "left_pairs": Join({"rows": "left", **_within(2, 5), "where": _LARGE[0]}, "LEFT", _between(2, 5) + _LARGE[1]),
    "full_pairs": Join({"rows": "full", **_within(0, 3)}, "FULL", _between(0, 3)),
    "right_pairs": Join({"rows": "right", **_within(4, 0)}, "RIGHT", _between(4, 0)),
    "anti_pairs": Join({"rows": "anti", **_within(5, 5), "where": _ENOUGH[0]}, "ANTI", _between(5, 5) + _ENOUGH[1]),
    "semi_pairs": Join({"rows": "semi", **_within(5, 5), "where": _ENOUGH[0]}, "SEMI", _between(5, 5) + _ENOUGH[1]),
    "window_pairs": Join({"rows": "inner", **_WINDOW}, "INNER", _TUMBLING),
    "window_left": Join({"rows": "left", **_WINDOW, "where": _LARGE[0]}, "LEFT", _TUMBLING + _LARGE[1]),
}


class Expected:
    """The pairs of every join, and the late rows of both sides for joins without windows."""

    def __init__(self, made: JoinInput) -> None:
        self.late = {side: find_late(made.written(side)) for side in SIDES}
        self.pairs: dict[str, Counter[Pair]] = {}
        with duckdb.connect() as database:
            for suffix, window_ms in (("", 1), ("_windows", WINDOW_MS)):
                for side in SIDES:
                    written = made.written(side)
                    late = find_late(written, window_ms)
                    kept = [entry for _, entry in written if entry.id not in late and entry.id >= 0]
                    _load(database, side + suffix, kept)
            for name, join in JOINS.items():
                self.pairs[name] = Counter(
                    (row[0], row[1] if len(row) > 1 else None) for row in database.execute(join.sql()).fetchall()
                )

    def sizes(self) -> dict[str, int]:
        """Returns the number of rows of every output."""
        return {name: pairs.total() for name, pairs in self.pairs.items()}


def _load(database: duckdb.DuckDBPyConnection, name: str, entries: Sequence[Entry]) -> None:
    """Creates a table of these rows, from lists of columns."""
    columns = {field: [getattr(entry, field) for entry in entries] for field in ("id", "account", "amount", "at")}
    lists = ", ".join(f"unnest(?::BIGINT[]) AS {field}" for field in columns)
    database.execute(f"CREATE TABLE {name} AS SELECT {lists}", list(columns.values()))


class Difference(NamedTuple):
    """What is wrong with one output."""

    lost: int
    doubled: int
    unexpected: int
    examples: list[str]

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.unexpected)


def compare(expected: Counter[Any], found: Counter[Any]) -> Difference:
    """Compares two multisets. A row too many is doubled if the row is expected."""
    lost, more = expected - found, found - expected
    doubled = sum(count for row, count in more.items() if row in expected)
    examples = [f"lost {row}" for row in list(lost)[:3]] + [f"too many {row}" for row in list(more)[:3]]
    return Difference(lost.total(), doubled, more.total() - doubled, examples)


def check_lookups(made: JoinInput, found: Iterable[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Returns what is wrong with the looked-up versions, per partition in log order.

    A version was written with this segment, is at least the one that the table had before the stream began, and never
    decreases per customer. None is right only for a customer that was missing or deleted at some time.
    """
    written: dict[str, dict[int, str]] = {}
    absent = set()
    for name, row in made.updates():
        if row is None:
            absent.add(name)
        else:
            written.setdefault(name, {})[row.version] = row.segment
    wrong: list[str] = []
    for rows in found:
        newest: dict[str, int] = {}
        for looked_up in rows:
            name, version = looked_up["customer"], looked_up["version"]
            if version is None:
                if name in made.loaded and name not in absent:
                    wrong.append(f"{looked_up}: the customer was never missing")
            elif written.get(name, {}).get(version) != looked_up["segment"]:
                wrong.append(f"{looked_up}: this version was never written")
            elif version < max(made.loaded.get(name, 1), newest.get(name, 0)):
                wrong.append(f"{looked_up}: older than {made.loaded.get(name)} or {newest.get(name)}")
            else:
                newest[name] = version
    return wrong
