"""The orders that every engine reads, the results that they must give, and the check of what an engine wrote.

An order is a function of its number, so nothing is kept: about 190 bytes of JSON with nine fields, keyed by customer. A
tenth of the orders is of the first 100 customers and skus. Prices are integers, so sums are exact.

W1 keeps the orders that are paid (half of them) and selects four fields and a product. W2 counts and sums the prices of
each customer, and emits each update. W3 counts and sums by sku in tumbling windows of event time, which it emits when
they close; closing orders, far ahead in event time, close those of a block.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import polars as pl

SKUS: Final = 1_000
HOT: Final = 100
PER_S: Final = 10_000
"""Orders in a second of event time."""
JITTER_MS: Final = 200
WINDOW_MS: Final = 10_000
MAIN_MS: Final = 1_767_225_600_000
WARM_MS: Final = MAIN_MS - 86_400_000
"""Event time of the warm-up block: no window of it is open when the main block arrives."""
AHEAD_MS: Final = 3_600_000
CLOSING: Final = "~"
"""What the keys of closing orders begin with; the check ignores their results."""
CLOSING_KEYS: Final = 32
"""Enough of them to reach every partition of an exchange by sku."""
STATUSES: Final = ("paid", "paid", "paid", "paid", "paid", "open", "open", "held", "refunded", "cancelled")
COUNTRIES: Final = ("DE", "FR", "NL", "PL", "SE", "ES", "IT", "AT")
TAIL: Final = ("customer", "sku", "qty", "price", "country", "status", "note")
"""The fields after the event time."""
NUMBERS: Final = ("qty", "price")
NOTES: Final = 512
BATCH: Final = 20_000

Message = dict[str, bytes]


class Workload(NamedTuple):
    """What the results of a workload look like."""

    schema: Mapping[str, type[pl.DataType]]
    key: str
    """The field that is also the record's key."""
    identity: Sequence[str]
    """The fields that a result has to itself."""
    order: str | None
    """The field that grows from record to record of a key."""


WORKLOADS: Final = {
    "W1": Workload(
        {"id": pl.Int64, "ts": pl.Int64, "customer": pl.String, "sku": pl.String, "total": pl.Int64},
        "customer",
        ("id",),
        "id",
    ),
    "W2": Workload(
        {"customer": pl.String, "count": pl.Int64, "sum": pl.Int64, "ts": pl.Int64},
        "customer",
        ("customer", "count"),
        "count",
    ),
    "W3": Workload(
        {"sku": pl.String, "window_start": pl.Int64, "count": pl.Int64, "sum": pl.Int64},
        "sku",
        ("sku", "window_start"),
        None,
    ),
}


class Orders(NamedTuple):
    """A warm-up block and a main block. `note` is the length of a text that no workload reads."""

    warm: int
    main: int
    customers: int = 10_000
    note: int = 60

    @property
    def total(self) -> int:
        """The number of orders."""
        return self.warm + self.main

    def frame(self, first: int, last: int) -> pl.DataFrame:
        """Makes the orders of these numbers, the last not included, without their notes."""
        number = pl.int_range(first, last, eager=True).alias("id")

        def draw(seed: int, bound: int) -> pl.Series:
            return (number.hash(seed) % bound).cast(pl.Int64)

        def skewed(seed: int, bound: int) -> pl.Series:
            return draw(seed, bound).zip_with(draw(seed + 1, 10) > 0, draw(seed + 2, HOT))

        time = number * 1000 // PER_S + WARM_MS
        main = (number - self.warm) * 1000 // PER_S + MAIN_MS
        return pl.DataFrame(
            {
                "id": number,
                "ts": time.zip_with(number < self.warm, main) - draw(1, JITTER_MS + 1),
                "customer": _name("c", skewed(2, self.customers), 7),
                "sku": _name("p", skewed(5, SKUS), 5),
                "qty": draw(8, 9) + 1,
                "price": draw(9, 19_900) + 100,
                "status": pl.Series(STATUSES).gather(draw(10, len(STATUSES))),
                "country": pl.Series(COUNTRIES).gather(draw(11, len(COUNTRIES))),
            }
        )

    def messages(self, first: int, last: int) -> Iterator[list[Message]]:
        """Yields the records of these orders in batches."""
        for start in range(first, last, BATCH):
            texts = self.texts(start, min(start + BATCH, last))
            yield [{"key": key, "value": b"%s%d%s" % (head, time, tail)} for key, head, time, tail in texts]

    def texts(self, first: int, last: int) -> list[tuple[bytes, bytes, int, bytes]]:
        """Returns the key of each order, the text before its event time, the event time, and the text after it."""
        number = pl.int_range(first, last, eager=True)
        frame = self.frame(first, last).with_columns(note=_notes(self.note).gather(number % NOTES))
        texts = frame.select(
            key=pl.col("customer").cast(pl.Binary),
            head=pl.concat_str(pl.lit('{"id":'), "id", pl.lit(',"ts":')).cast(pl.Binary),
            time="ts",
            tail=pl.concat_str(
                *(part for name in TAIL for part in (pl.lit(f',"{name}":'), _as_json(name))), pl.lit("}")
            ).cast(pl.Binary),
        )
        return texts.rows()

    def closing(self, after: int, ahead: int = 0) -> list[Message]:
        """Returns orders that close all windows of the first `after` orders."""
        ends = MAIN_MS + (after - self.warm) * 1000 // PER_S if after > self.warm else WARM_MS + after * 1000 // PER_S
        return [
            {
                "key": b"~%d" % key,
                "value": b'{"id":-1,"ts":%d,"customer":"~%d","sku":"~%d","qty":1,"price":1,"country":"DE",'
                b'"status":"closing","note":""}' % (ends + AHEAD_MS + ahead, key, key),
            }
            for key in range(CLOSING_KEYS)
        ]

    def expected(self, workload: str, last: int) -> pl.DataFrame:
        """Returns the results of the first `last` orders."""
        lazy = pl.concat(self.frame(at, min(at + 1_000_000, last)) for at in range(0, last, 1_000_000)).lazy()
        columns = list(WORKLOADS[workload].schema)
        if workload == "W1":
            found = lazy.filter(status="paid").with_columns(total=pl.col("qty") * pl.col("price"))
        elif workload == "W2":
            found = lazy.with_columns(
                count=pl.col("id").cum_count().over("customer").cast(pl.Int64),
                sum=pl.col("price").cum_sum().over("customer"),
            )
        else:
            start = pl.col("ts") - pl.col("ts") % WINDOW_MS
            found = lazy.group_by("sku", window_start=start).agg(
                count=pl.len().cast(pl.Int64), sum=pl.col("price").sum()
            )
        return found.select(columns).collect()


def _name(letter: str, numbers: pl.Series, digits: int) -> pl.Series:
    return letter + numbers.cast(pl.String).str.zfill(digits)


def _as_json(name: str) -> pl.Expr:
    return pl.col(name) if name in NUMBERS else pl.concat_str(pl.lit('"'), name, pl.lit('"'))


def _notes(size: int) -> pl.Series:
    dice = random.Random(size)
    return pl.Series(["".join(dice.choices("abcdefghijklmnopqrstuvwxyz ", k=size)) for _ in range(NOTES)])


class Output(NamedTuple):
    """The records of an output topic, of each partition in the order of its log."""

    partitions: list[int]
    keys: list[bytes | None]
    values: list[bytes]

    def frame(self, workload: str) -> pl.DataFrame:
        """Decodes the records and leaves out the results of closing orders. Fails if a value is no JSON."""
        one = WORKLOADS[workload]
        schema = dict(one.schema)
        rows = pl.read_ndjson(b"\n".join(self.values), schema=schema) if self.values else pl.DataFrame(schema=schema)
        keys = pl.Series(self.keys, dtype=pl.Binary).cast(pl.String, strict=False)
        rows = rows.with_columns(__partition=pl.Series(self.partitions, dtype=pl.Int32), __key=keys)
        return rows.filter(~pl.col(one.key).fill_null("").str.starts_with(CLOSING))


def check(workload: str, expected: pl.DataFrame, found: pl.DataFrame, ignored: Sequence[str] = ()) -> dict[str, Any]:
    """Counts what is wrong with the results: nothing is left out of the answer that is not zero.

    The fields in `ignored` may have any value.
    """
    one = WORKLOADS[workload]
    identity, key = list(one.identity), pl.col(one.key)
    compared = [name for name in one.schema if name not in identity and name not in ignored]
    distinct = found.unique(identity, keep="first", maintain_order=True)
    both = distinct.join(expected, on=identity, how="inner", suffix="_expected")
    differs = pl.any_horizontal(*(pl.col(name).ne_missing(pl.col(f"{name}_expected")) for name in compared))
    counts = {
        "lost": expected.height - both.height,
        "duplicated": found.height - distinct.height,
        "unexpected": distinct.height - both.height,
        "wrong": both.filter(differs).height,
        "other_key": found.filter(pl.col("__key").ne_missing(key)).height,
        "key_in_partitions": found.group_by(one.key)
        .agg(pl.col("__partition").n_unique())
        .filter(pl.col("__partition") > 1)
        .height,
    }
    if one.order is not None:
        before = pl.col(one.order).shift().over("__partition", one.key)
        counts["out_of_order"] = distinct.filter(pl.col(one.order) < before).height
    return {"results": found.height, **{name: count for name, count in counts.items() if count}}
