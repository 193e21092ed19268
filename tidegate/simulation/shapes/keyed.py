"""Shapes with state, in which an output record depends on the records before it in its partition.

The partition number is part of the key. The order of each key therefore does not depend on which slot reads what when.
Event times are out of order, some by more than the watermark delay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from tidegate.simulation.shapes.shape import TIMED_SCHEMA, Content, DerivedShape, Produced

if TYPE_CHECKING:
    from tidegate.ids import TopicPartition
    from tidegate.simulation.workload import InputRecord

DELAY_MS: Final = 150
WITHIN_MS: Final = 300
TTL_MS: Final = 1000
PLACES: Final = 2

Key = tuple[str, "TopicPartition"]


class _Keyed(DerivedShape):
    """Records with event times, and steps keyed by sku and partition."""

    schema = TIMED_SCHEMA
    source: ClassVar[Mapping[str, Any]] = {
        "metadata": {"partition": "part"},
        "event_time": "at",
        "watermark": {"delay": f"{DELAY_MS}ms", "idle": "never"},
    }
    exactly_once = True
    growing = False  # a partition that is found later begins before the watermark
    bounded = False

    @override
    def time_of(self, number: int, now_ms: int) -> int:
        """Returns a time that is mostly within the watermark delay."""
        return now_ms - (number * 7919 % 97) - (number * 104_729 % 13 == 0) * 400


class Dedup(_Keyed):
    """The first record of a key within a time range."""

    outputs = ("firsts",)
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"name": "firsts", "from": "orders", "dedup": {"key": ["part", "sku"], "within": f"{WITHIN_MS}ms"}},
        {"name": "rows", "from": "firsts", "select": {"id": "id", "sku": "sku", "at": "at"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"to_firsts": {"topic": "firsts", "from": "rows", "key": "sku"}}

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {"records that deduplication drops": len(records) - len(produced)}

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        passed: dict[Key, list[int]] = defaultdict(list)
        made = []
        for record, watermark_ms in _with_watermarks(records):
            at, key = record.event_ms, (record.sku, record.place)
            if watermark_ms < at and all(abs(at - other) > WITHIN_MS for other in passed[key]):
                passed[key].append(at)
                made.append(_row("firsts", record, {"at": at}))
        return made


class LastShape(_Keyed):
    """A record, unless a later one of its key has passed."""

    outputs = ("lasts",)
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"name": "lasts", "from": "orders", "key": ["part", "sku"], "keep": "last"},
        {"name": "rows", "from": "lasts", "select": {"id": "id", "sku": "sku", "at": "at"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"to_lasts": {"topic": "lasts", "from": "rows", "key": "sku"}}

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {"records that are not the last": len(records) - len(produced)}

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        latest: dict[Key, int] = {}
        made = []
        for record in records:
            at, key = record.event_ms, (record.sku, record.place)
            if at >= latest.get(key, at):
                latest[key] = at
                made.append(_row("lasts", record, {"at": at}))
        return made


class Best(_Keyed):
    """The most expensive records of each key, with their ranks."""

    outputs = ("best",)
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {
            "name": "rows",
            "from": "orders",
            "select": {"part": "part", "sku": "sku", "id": "id", "cents": "price_cents"},
        },
        {"name": "best", "from": "rows", "key": ["part", "sku"], "keep": {"by": "cents", "n": PLACES, "emit": "each"}},
        {"name": "ranks", "from": "best", "select": {"id": "id", "sku": "sku", "cents": "cents", "rank": "rank"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"to_best": {"topic": "best", "from": "ranks", "key": "sku"}}

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {
            "records that a ranking moves down": sum(
                one.content.row["id"] not in one.causes for one in produced if one.content.row
            )
        }

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        ranking: dict[Key, list[InputRecord]] = defaultdict(list)
        made = []
        for record in records:
            best = ranking[record.sku, record.place]
            before = list(best)
            best.append(record)
            best.sort(key=lambda one: (-one.price_cents, one.id))
            del best[PLACES:]
            for rank, one in enumerate(best, 1):
                if rank > len(before) or before[rank - 1] is not one:
                    made.append(_row("best", one, {"cents": one.price_cents, "rank": rank}, (one.id, rank), record.id))
        return made

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return content.row["id"], content.row["rank"]


class Expiring(_Keyed):
    """Totals that start again if no record has come for a while."""

    outputs = ("lives",)
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {
            "name": "lives",
            "from": "orders",
            "key": ["part", "sku"],
            "aggregate": {"id": "last(id)", "orders": "count(*)", "cents": "sum(price_cents)"},
            "ttl": f"{TTL_MS}ms",
        },
        {"name": "rows", "from": "lives", "select": {"id": "id", "sku": "sku", "orders": "orders", "cents": "cents"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"to_lives": {"topic": "lives", "from": "rows", "key": "sku"}}

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {
            "totals that begin again": sum(one.content.row["orders"] == 1 for one in produced if one.content.row)
            - len({one.lane for one in produced})
        }

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        totals: dict[Key, tuple[int, int, int]] = {}
        made = []
        for record, watermark_ms in _with_watermarks(records):
            at, key = record.event_ms, (record.sku, record.place)
            orders, cents, ends = totals.get(key, (0, 0, at))
            if max(at, watermark_ms + 1) > ends:  # by then everything before the next millisecond has passed
                orders, cents, ends = 0, 0, at
            totals[key] = orders + 1, cents + record.price_cents, max(ends, at + TTL_MS)
            made.append(_row("lives", record, {"orders": orders + 1, "cents": cents + record.price_cents}))
        return made


def _with_watermarks(records: Sequence[InputRecord]) -> Iterator[tuple[InputRecord, int]]:
    """Yields each record with the watermark of its partition when it is read."""
    highest: dict[TopicPartition, int] = {}
    for record in records:
        before = highest.get(record.place, 0)
        yield record, before - DELAY_MS - 1
        highest[record.place] = max(before, record.event_ms)


def _row(
    topic: str, record: InputRecord, more: Mapping[str, Any], name: Hashable = None, cause: int | None = None
) -> Produced:
    content = Content(record.sku.encode(), {"id": record.id, "sku": record.sku, **more})
    return Produced(
        topic,
        record.id if name is None else name,
        (record.sku, record.place),
        frozenset({record.id if cause is None else cause}),
        content,
    )
