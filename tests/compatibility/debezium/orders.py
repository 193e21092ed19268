"""A table of orders, and random transactions on it."""

from __future__ import annotations

import random
from typing import Any, Final

TABLE: Final = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, region text DEFAULT 'north', amount numeric(10,2), "
    "status text NOT NULL, note text, at timestamptz NOT NULL, due date, weight double precision, "
    "seen timestamp, made timestamp(3))"
)
IDENTITY: Final = "ALTER TABLE orders REPLICA IDENTITY FULL"
REGIONS: Final = ("'north'", "'south'", "'east'", "'w''est'", "NULL")
STATUSES: Final = ("'open'", "'open'", "'paid'", "'gone'")
WEIGHTS: Final = ("NULL", "1.5", "0.1", "-2.25", "1e10", "3")
TOAST: Final = "(SELECT string_agg(md5({seed}::text || i), '') FROM generate_series(1, 300) i)"
"""About 10 kB that do not compress: outside the row."""

COLUMNS: Final[dict[str, str]] = {
    "id": "bigint",
    "region": "string",
    "amount": "decimal(10,2)",
    "status": "string",
    "note": "string",
    "at": "timestamp",
    "due": "date",
    "weight": "double",
    "seen": "timestamp_ntz",
    "made": "timestamp_ntz",
}

TOTALS: Final[dict[str, str]] = {
    "n": "count(*)",
    "priced": "count(amount)",
    "net": "sum(amount)",
    "least": "min(amount)",
    "most": "max(amount)",
    "kinds": "count(distinct status)",
    "heavy": "max(weight)",
    "first_due": "min(due)",
    "longest": "max(length(note))",
}
"""Functions that PostgreSQL has by the same names."""


class Writer:
    """Makes transactions as texts; it knows which ids there are."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._ids: list[int] = []
        self._next = 1
        self.done: dict[str, int] = {}

    def first(self, rows: int) -> list[str]:
        """What is there before the connector comes."""
        return [self._insert(self._ids) for _ in range(rows)]

    def transaction(self) -> list[str]:
        """One to five changes, now and then rolled back."""
        ids = list(self._ids)
        changes = [self._change(ids) for _ in range(self._dice.randint(1, 5))]
        if self._dice.random() < 0.1:
            self._count("rollback")
            return ["BEGIN", *changes, "ROLLBACK"]
        self._ids = ids
        return ["BEGIN", *changes, "COMMIT"]

    def _change(self, ids: list[int]) -> str:
        kinds: dict[str, Any] = {
            "insert": (30, self._insert),
            "update": (35, self._update),
            "many": (3, self._update_many),
            "touch": (5, self._touch),
            "key": (7, self._move),
            "delete": (15, self._delete),
            "again": (5, self._again),
        }
        if not ids:
            return self._insert(ids)
        (kind,) = self._dice.choices(list(kinds), [weight for weight, _ in kinds.values()])
        self._count(kind)
        text: str = kinds[kind][1](ids)
        return text

    def _insert(self, ids: list[int]) -> str:
        ids.append(self._next)
        self._next += 1
        return f"INSERT INTO orders VALUES ({ids[-1]}, {self._values()})"

    def _values(self) -> str:
        note = self._dice.choice(["NULL", "''", "'short'", TOAST.format(seed=self._dice.randrange(1000))])
        return ", ".join([
            self._dice.choice(REGIONS), self._amount(), self._dice.choice(STATUSES), note, "now()", self._due(),
            self._dice.choice(WEIGHTS), "clock_timestamp()", "clock_timestamp()",
        ])  # fmt: skip

    def _amount(self) -> str:
        return self._dice.choice(
            ["NULL", "0", "99999999.99", *(f"{self._dice.uniform(-50, 500):.2f}" for _ in range(6))]
        )

    def _due(self) -> str:
        return self._dice.choice(["NULL", f"DATE '2024-01-01' + {self._dice.randrange(1000)}"])

    def _update(self, ids: list[int]) -> str:
        change = self._dice.choice([
            f"amount = {self._amount()}", f"status = {self._dice.choice(STATUSES)}",
            f"region = {self._dice.choice(REGIONS)}", f"due = {self._due()}",
            f"weight = {self._dice.choice(WEIGHTS)}, at = now()",
        ])  # fmt: skip
        return f"UPDATE orders SET {change} WHERE id = {self._dice.choice(ids)}"

    def _update_many(self, _ids: list[int]) -> str:
        return f"UPDATE orders SET amount = amount - 1, status = 'open' WHERE id % 11 = {self._dice.randrange(11)}"

    def _touch(self, ids: list[int]) -> str:
        """An update that changes nothing, not even a value outside the row."""
        return f"UPDATE orders SET status = status WHERE id = {self._dice.choice(ids)}"

    def _move(self, ids: list[int]) -> str:
        old = ids.pop(self._dice.randrange(len(ids)))
        ids.append(self._next)
        self._next += 1
        return f"UPDATE orders SET id = {ids[-1]} WHERE id = {old}"

    def _delete(self, ids: list[int]) -> str:
        return f"DELETE FROM orders WHERE id = {ids.pop(self._dice.randrange(len(ids)))}"

    def _again(self, ids: list[int]) -> str:
        one = self._dice.choice(ids)
        return f"DELETE FROM orders WHERE id = {one}; INSERT INTO orders VALUES ({one}, {self._values()})"

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1
