"""User code that examples of kinds name (`StepKind.examples`): source text by the path of the module."""

from __future__ import annotations

from typing import Final

_VISITS: Final = """
from datetime import timedelta

from tidegate.python import List, Map, Step, Timer, Value

class Visits(Step):
    visits = Value("bigint", default=0)

    def open(self, settings):
        self.first = settings["first"]

    def process(self, row, out):
        self.visits.set(self.visits.get() + 1)
        out.emit(customer=row["customer"], visits=self.visits.get() + self.first)

class Sessions(Step):
    visits = Value("bigint", default=0, ttl="1h")
    pages = Map("bigint", "double")
    recent = List("string")
    quiet = Timer("event-time")

    def process(self, row, out):
        self.visits.set(self.visits.get() + 1)
        self.pages[row["id"] % 3] = row["amount"]
        self.recent.append(row["customer"])
        self.quiet.set(row.time + timedelta(seconds=2))

    def on_timer(self, name, at, out):
        out.emit(u=self.key[0], n=self.visits.take())
        out.to("ended", u=self.key[0], n=len(self.pages) + len(self.recent))
        self.pages.clear()
        self.recent.clear()

class Sorted(Step):
    def process(self, row, out):
        if row["id"] % 2:
            out.to("odd", row)
        else:
            out.emit(id=row["id"])

def tags(row):
    return [{"customer": row["customer"], "tag": tag} for tag in row["tags"]]

class Totals(Step):
    total = Value("bigint", default=0)

    def process_batch(self, keys, frame, out):
        counts = frame.group_by("customer", maintain_order=True).len()
        totals = self.total.get_many(counts) + counts["len"]
        self.total.set_many(counts, totals)
        out.emit(counts.with_columns(total=totals))

def double(frame):
    return frame.select("id", twice=frame["amount"] * 2)
"""
EXAMPLE_MODULES: Final = {"visits.py": _VISITS, "lookups.py": "async def country(row):\n    return None\n"}
