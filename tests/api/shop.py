"""A pipeline of a shop, and its rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

SHOP = """\
version: 1
name: shop
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
dead_letters: {topic: dead}
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, amount: "decimal(10,2)", at: timestamp, tags: "map<string, int>"}
    metadata: {key: rk, timestamp: written, headers: headers, partition: part}
    event_time: at
    bad_records: dead-letter
steps:
  - {name: large, from: orders, where: amount >= 100}
  - {name: rows, from: large, select: {id: id, customer: customer, amount: amount, tags: tags, written: written}}
  - {name: per_minute, from: orders, key: customer, window: {tumbling: 1m}, aggregate: {n: count(*), net: sum(amount)}}
sinks:
  big: {from: rows, topic: large, key: customer}
  totals: {from: per_minute, topic: totals, key: customer}
tests:
  - name: only large orders go out
    given:
      orders:
        - {value: {amount: 5, at: "2026-01-01T00:00:00Z"}}
        - {value: {amount: 100, at: "2026-01-01T00:00:00Z"}}
    expect: {big: [{key: null, timestamp: null}]}
  - name: a customer is expected
    given: {orders: [{value: {id: 1, customer: ann, amount: 100, at: "2026-01-01T00:00:00Z"}}]}
    expect: {big: [{key: bo}]}
"""


def at(second: int) -> dt.datetime:
    """A moment of the first hour."""
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


def order(number: int, customer: str, amount: float, second: int, **more: object) -> dict[str, Any]:
    """A row of `orders`."""
    return {"id": number, "customer": customer, "amount": amount, "at": at(second), **more}
