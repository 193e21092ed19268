"""Two releases of the orders pipeline, as a user would change the file, and the check of the totals across both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.dev.demo.verify import Order

LARGE: Final = 2**31
"""A quantity beyond the range of the first release."""

Rows = Sequence[tuple[bytes | None, bytes]]


def released(document: dict[str, Any], release: int) -> dict[str, Any]:
    """Returns the file with two more totals (release 1), or its changed version (release 2).

    Release 2 renames the source and steps and widens the integer type of the quantity and its maximum. It renames one
    total, adds one, and changes the expression of one without changing its results.
    """
    paid, priced, totals = document["steps"]
    quantities = {"units": "sum(quantity)", "largest": "max(quantity)"}
    if release == 1:
        return document | {"steps": [paid, priced, totals | {"aggregate": totals["aggregate"] | quantities}]}
    (source,) = document["sources"].values()
    added = {"first_id": "min(id)"}
    changed = {
        "aggregate": added | totals["aggregate"] | {"pieces": "sum(quantity)", "largest": "max(quantity)"},
        "was": {"step": "totals", "columns": {"pieces": "units"}},
        "state": {"keep": "the same product"},
    }
    changed["aggregate"] |= {"revenue_cents": "sum(price_cents * quantity)"}
    return document | {
        "sources": {"purchases": source | {"was": "orders", "schema": source["schema"] | {"quantity": "bigint"}}},
        "steps": [
            paid | {"name": "settled", "was": "paid", "from": "purchases"},
            priced | {"from": "settled"},
            totals | {"name": "sums", "from": "purchases"} | changed,
        ],
        "sinks": document["sinks"] | {"sku_totals": document["sinks"]["sku_totals"] | {"from": "sums"}},
    }


def enlarged(order: Order) -> Order:
    """Makes every third order a large one."""
    return msgspec.structs.replace(order, quantity=order.quantity + LARGE) if order.id % 3 == 0 else order


class _Update(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A row of either release; columns that a release lacks are None."""

    sku: str
    orders: int
    revenue_cents: int
    last_id: int
    largest: int
    units: int | None = None
    pieces: int | None = None
    first_id: int | None = None


class Counts(msgspec.Struct):
    """How often each effect of the changes was seen."""

    before: int = 0
    after: int = 0
    continued: int = 0
    """Rows of the second release for a sku that the first one had."""
    remembered: int = 0
    """Continued rows whose maximum originates from the first release."""
    large: int = 0
    """Rows whose maximum the first release could not hold."""


def check_changed_totals(orders: Sequence[Order], partitions: Sequence[Rows], first_changed: int) -> Counts:
    """Checks every total of every row. The second release has read the orders from `first_changed` on.

    Kept totals continue from their previous value, the added one begins at the change. Raises AssertionError.
    """
    counts = Counts()
    decode = msgspec.json.Decoder(_Update).decode
    for rows in partitions:
        now: dict[str, _Update] = {}
        for _, value in rows:
            row = decode(value)
            order = orders[row.last_id]
            changed = order.id >= first_changed
            before = now.get(row.sku)
            wanted = now[row.sku] = _next(before, order, changed=changed)
            assert row == wanted, f"{row} where {wanted} belongs"
            counts.before += not changed
            counts.after += changed
            if changed and before is not None:
                counts.continued += before.pieces is None
                counts.remembered += before.largest == row.largest and before.pieces is None
            counts.large += row.largest >= LARGE
    return counts


def _next(before: _Update | None, order: Order, *, changed: bool) -> _Update:
    old = _Update(order.sku, 0, 0, -1, 0) if before is None else before
    quantity = (old.units or old.pieces or 0) + order.quantity
    return _Update(
        sku=order.sku,
        orders=old.orders + 1,
        revenue_cents=old.revenue_cents + order.quantity * order.price_cents,
        last_id=order.id,
        largest=max(old.largest, order.quantity),
        units=None if changed else quantity,
        pieces=quantity if changed else None,
        first_id=min(order.id, order.id if old.first_id is None else old.first_id) if changed else None,
    )
