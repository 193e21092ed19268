"""W1 and W2 in Python, for `engines.py` and `python.py`: what `select` and `aggregate` do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.python import Out, Row, Step, Value


def paid_row(row: Row) -> Mapping[str, Any] | None:
    """One row at a time: paid orders and what they come to."""
    if row["status"] != "paid":
        return None
    total = row["qty"] * row["price"]
    return {"id": row["id"], "ts": row["ts"], "customer": row["customer"], "sku": row["sku"], "total": total}


def paid_batch(frame: pl.DataFrame) -> pl.DataFrame:
    """The same for a batch."""
    paid = frame.filter(pl.col("status") == "paid")
    return paid.select("id", "ts", "customer", "sku", total=pl.col("qty") * pl.col("price"))


class TotalsByRow(Step):
    """Running totals of a customer, in two values."""

    count = Value("bigint", default=0)
    sum = Value("bigint", default=0)

    @override
    def process(self, row: Row, out: Out) -> None:
        count = self.count.get() + 1
        total = self.sum.get() + row["price"]
        self.count.set(count)
        self.sum.set(total)
        out.emit(customer=row["customer"], count=count, sum=total, ts=row["ts"])


class TotalsByStruct(Step):
    """Running totals of a customer, in one value with two fields."""

    totals = Value("struct<count: bigint, sum: bigint>", default={"count": 0, "sum": 0})

    @override
    def process(self, row: Row, out: Out) -> None:
        before = self.totals.get()
        totals = {"count": before["count"] + 1, "sum": before["sum"] + row["price"]}
        self.totals.set(totals)
        out.emit(customer=row["customer"], ts=row["ts"], **totals)


class TotalsByBatch(Step):
    """Running totals of a customer, a batch at a time."""

    count = Value("bigint", default=0)
    sum = Value("bigint", default=0)

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # the rows have them, too
        """Adds the rows of a batch."""
        totals = frame.select(
            "customer",
            count=self.count.get_many(frame) + pl.col("ts").cum_count().over("customer"),
            sum=self.sum.get_many(frame) + pl.col("price").cum_sum().over("customer"),
            ts="ts",
        )
        self.count.set_many(frame, totals["count"])
        self.sum.set_many(frame, totals["sum"])
        out.emit(totals)
