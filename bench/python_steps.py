"""The code of the pipelines of python.py: what `select` and `aggregate` do, written in Python."""

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
    return {"id": row["id"], "customer": row["customer"], "sku": row["sku"], "total": row["quantity"] * row["price"]}


def paid_batch(frame: pl.DataFrame) -> pl.DataFrame:
    """The same for a batch."""
    paid = frame.filter(pl.col("status") == "paid")
    return paid.select("id", "customer", "sku", total=pl.col("quantity") * pl.col("price"))


class TotalsByRow(Step):
    """Running totals of a customer, in two values."""

    orders = Value("bigint", default=0)
    revenue = Value("bigint", default=0)

    @override
    def process(self, row: Row, out: Out) -> None:
        orders = self.orders.get() + 1
        revenue = self.revenue.get() + row["price"]
        self.orders.set(orders)
        self.revenue.set(revenue)
        out.emit(customer=row["customer"], orders=orders, revenue=revenue, last_id=row["id"])


class TotalsByStruct(Step):
    """Running totals of a customer, in one value with two fields."""

    totals = Value("struct<orders: bigint, revenue: bigint>", default={"orders": 0, "revenue": 0})

    @override
    def process(self, row: Row, out: Out) -> None:
        before = self.totals.get()
        totals = {"orders": before["orders"] + 1, "revenue": before["revenue"] + row["price"]}
        self.totals.set(totals)
        out.emit(customer=row["customer"], last_id=row["id"], **totals)


class TotalsByBatch(Step):
    """Running totals of a customer, a batch at a time."""

    orders = Value("bigint", default=0)
    revenue = Value("bigint", default=0)

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # the rows have them, too
        """Adds the rows of a batch."""
        totals = frame.select(
            "customer",
            orders=self.orders.get_many(frame) + pl.col("id").cum_count().over("customer"),
            revenue=self.revenue.get_many(frame) + pl.col("price").cum_sum().over("customer"),
            last_id="id",
        )
        self.orders.set_many(frame, totals["orders"])
        self.revenue.set_many(frame, totals["revenue"])
        out.emit(totals)
