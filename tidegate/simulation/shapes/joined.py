"""Joins of two topics by event time, and the absence of keys; `simulation/on_time.py` judges them.

The two topics have different schemas. Some records have a NULL key, and some pairs do not fulfil the condition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.shape import (
    LATE_TOPIC,
    TIMED_SCHEMA,
    Content,
    Expected,
    OnTimeShape,
    Step,
    alternate,
)
from tidegate.simulation.timing import Timing, begins_of

if TYPE_CHECKING:
    from tidegate.simulation.workload import InputRecord

LEFT: Final = "orders"
RIGHT: Final = "payments"
NULL_OF: Final = 9
"""One record in this many has a NULL key."""
REPEATS_MAX: Final = 12
REPEAT_MS: Final = 24 * 3_600_000
"""Only a pipeline that is started again a week later repeats its results."""

_ALONE_LEFT: Final = frozenset({"left", "full", "anti"})
_ALONE_RIGHT: Final = frozenset({"right", "full"})
_OF_LEFT: Final = frozenset({"semi", "anti"})


class _Join(OnTimeShape):
    """Pairs of orders and payments by sku."""

    inputs = (LEFT, RIGHT)
    outputs = ("pairs", LATE_TOPIC)
    schema = TIMED_SCHEMA
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        RIGHT: {"schema": {"payment": "bigint", "item": "string", "amount": "int", "at": "bigint"}}
    }
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_pairs": {"topic": "pairs", "from": "pairs", "key": "sku"},
        "late_rows": {"topic": LATE_TOPIC},
    }
    rows: str = "inner"

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        assert timing is not None, "a join has a size"
        select = {"sku": "order.sku", "id": "order.id"}
        if self.rows not in _OF_LEFT:
            select |= {"sku": "coalesce(order.sku, payment.item)", "payment": "payment.payment"}
        return [
            {
                "name": "pairs",
                "join": {"order": LEFT, "payment": RIGHT},
                "on": {"sku": "item"},
                "rows": self.rows,
                "where": "payment.amount > 1 or order.quantity > 2",
                "select": select,
                "late": "late_rows",
                **self._reach(timing),
                **({"ahead": f"{timing.lead_ms // 4}ms"} if timing.lead_ms else {}),
            }
        ]

    def _reach(self, timing: Timing) -> Mapping[str, Any]:
        """Returns the settings of which rows meet."""
        raise NotImplementedError

    def _meets(self, left: InputRecord, right: InputRecord, timing: Timing) -> bool:
        """Returns whether two rows with the same key are close enough in time."""
        raise NotImplementedError

    def _alone_at(self, record: InputRecord, timing: Timing) -> int:
        """Returns the watermark at which no partner can arrive any more."""
        raise NotImplementedError

    @override
    def choose_inputs(self, topics: Sequence[str], now_s: float, timing: Timing | None) -> Sequence[str]:
        return alternate(topics, now_s) if timing is not None and timing.alternating else topics

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        if record.place.topic == LEFT:
            row = {**msgspec.json.decode(record.value), "sku": key_of(record)}
        else:
            row = {"payment": record.id, "item": key_of(record), "amount": record.quantity, "at": record.at}
        return Record(record.customer.encode(), msgspec.json.encode(row), now_ms)

    @override
    def derive(self, records: Sequence[InputRecord], timing: Timing) -> list[Expected]:
        sides: dict[str, dict[str, list[InputRecord]]] = {topic: defaultdict(list) for topic in self.inputs}
        for one in records:
            sides[one.place.topic][one.sku].append(one)
        made: list[Expected] = []
        met: set[int] = set()
        partners: defaultdict[int, set[int]] = defaultdict(set)
        for sku, lefts in sides[LEFT].items():
            for left in lefts:
                for right in sides[RIGHT].get(sku, ()):
                    if key_of(left) and key_of(right) and _fulfils(left, right) and self._meets(left, right, timing):
                        if self.rows not in _OF_LEFT:
                            made.append(self._row(left, right))
                        else:
                            partners[left.id].add(right.id)
                        met |= {left.id, right.id}
        if self.rows == "semi":
            made += [
                msgspec.structs.replace(self._row(one, None), any_of=frozenset(partners[one.id]))
                for one in records
                if one.id in partners
            ]
        alone = {LEFT: self.rows in _ALONE_LEFT, RIGHT: self.rows in _ALONE_RIGHT}
        for one in records:
            if alone[one.place.topic] and one.id not in met:
                due_ms = self._alone_at(one, timing) if key_of(one) else None
                made.append(self._row(one, None, due_ms) if one.place.topic == LEFT else self._row(None, one, due_ms))
        return made

    def _row(self, left: InputRecord | None, right: InputRecord | None, due_ms: int | None = None) -> Expected:
        both = [one for one in (left, right) if one is not None]
        sku = key_of(both[0])
        numbers = None if left is None else left.id, None if right is None else right.id
        row = {"sku": sku, "id": numbers[0]} | ({} if self.rows in _OF_LEFT else {"payment": numbers[1]})
        content = Content(None if sku is None else sku.encode(), row)
        return Expected("pairs", numbers, frozenset(one.id for one in both), due_ms, content)

    @override
    def due_of(self, content: Content, records: Sequence[InputRecord], timing: Timing) -> int | None:
        numbers = self.causes_of(content)
        if len(numbers) > 1 or self.rows == "semi" or key_of(records[numbers[0]]) is None:
            return None
        return self._alone_at(records[numbers[0]], timing)

    @override
    def causes_of(self, content: Content) -> tuple[int, ...]:
        assert content.row is not None
        return tuple(one for one in (content.row["id"], content.row.get("payment")) if one is not None)

    @override
    def is_kept(self, record: InputRecord) -> bool:
        return key_of(record) is not None

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return self.read_late(content.row) if topic == LATE_TOPIC else (content.row["id"], content.row.get("payment"))

    @override
    def read_late(self, row: Mapping[str, Any]) -> int:
        return int(row["order"]["id"] if row["_side"] == "order" else row["payment"]["payment"])


class IntervalJoin(_Join):
    """Payments at most a quarter of the size before an order, or the size after it."""

    def __init__(self, rows: str) -> None:
        self.rows = rows

    @override
    def _reach(self, timing: Timing) -> Mapping[str, Any]:
        return {"within": {"before": f"{_before_ms(timing)}ms", "after": f"{timing.size_ms}ms"}}

    @override
    def _meets(self, left: InputRecord, right: InputRecord, timing: Timing) -> bool:
        return -_before_ms(timing) <= right.event_ms - left.event_ms <= timing.size_ms

    @override
    def _alone_at(self, record: InputRecord, timing: Timing) -> int:
        return record.event_ms + (timing.size_ms if record.place.topic == LEFT else _before_ms(timing))


class WindowJoin(_Join):
    """Orders and payments of one window."""

    def __init__(self, rows: str) -> None:
        self.rows = rows

    @override
    def _reach(self, timing: Timing) -> Mapping[str, Any]:
        return {"window": {"tumbling": f"{timing.size_ms}ms"}}

    @override
    def accepted_until(self, record: InputRecord, timing: Timing) -> int:
        return self._alone_at(record, timing)

    @override
    def _meets(self, left: InputRecord, right: InputRecord, timing: Timing) -> bool:
        return _window(left, timing) == _window(right, timing)

    @override
    def _alone_at(self, record: InputRecord, timing: Timing) -> int:
        return _window(record, timing) + timing.size_ms - 1


class Quiet(OnTimeShape):
    """Keys from which nothing has come for a while, and those that are back."""

    outputs = ("silent", LATE_TOPIC)
    schema = TIMED_SCHEMA
    repeats = True
    ordered = True
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_silent": {"topic": "silent", "from": "rows", "key": "sku"},
        "late_rows": {"topic": LATE_TOPIC},
    }

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        assert timing is not None, "absence has a time"
        return [
            {
                "name": "silent",
                "from": LEFT,
                "quiet": {"key": "sku", "for": f"{timing.size_ms}ms", "repeat": f"{REPEAT_MS}ms"},
                "late": "late_rows",
            },
            {
                "name": "rows",
                "from": "silent",
                "select": {"sku": "sku", "quiet": "quiet", "last_ms": "unix_millis(last_at)"},
            },
        ]

    @override
    def derive(self, records: Sequence[InputRecord], timing: Timing) -> list[Expected]:
        by_sku: dict[str, list[InputRecord]] = defaultdict(list)
        for one in sorted(records, key=lambda record: record.event_ms):
            by_sku[one.sku].append(one)
        return [row for of_key in by_sku.values() for row in _silences(of_key, timing.size_ms)]

    @override
    def due_of(self, content: Content, records: Sequence[InputRecord], timing: Timing) -> int:
        assert content.row is not None
        return int(content.row["last_ms"]) + timing.size_ms

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        row = content.row
        assert row is not None
        return self.read_late(row) if topic == LATE_TOPIC else (row["sku"], row["last_ms"], row["quiet"])


def _silences(records: Sequence[InputRecord], for_ms: int) -> Iterator[Expected]:
    """Yields the results of one key, whose records are in the order of their event times."""
    for index, one in enumerate(records):
        at, after = one.event_ms, records[index + 1 :][:1]
        back_ms = after[0].event_ms if after else None
        if back_ms is not None and back_ms - at <= for_ms:
            continue
        last = frozenset(other.id for other in records if other.event_ms == at)
        due_ms, number = at + for_ms, 0
        while number < REPEATS_MAX and (back_ms is None or due_ms < back_ms):
            yield _silence(one.sku, at, True, number, last, due_ms)
            due_ms, number = due_ms + REPEAT_MS, number + 1
        if back_ms is not None:
            causes = last | {after[0].id}
            yield _silence(one.sku, at, False, 0, causes, back_ms)


def _silence(sku: str, last_ms: int, quiet: bool, number: int, causes: frozenset[int], due_ms: int) -> Expected:
    row = {"sku": sku, "quiet": quiet, "last_ms": last_ms}
    return Expected("silent", ((sku, last_ms, quiet), number), causes, due_ms, Content(sku.encode(), row))


def key_of(record: InputRecord) -> str | None:
    """Returns the join key of a record."""
    return None if record.id % NULL_OF == NULL_OF - 1 else record.sku


def _fulfils(left: InputRecord, right: InputRecord) -> bool:
    return right.quantity > 1 or left.quantity > 2


def _before_ms(timing: Timing) -> int:
    return timing.size_ms // 4


def _window(record: InputRecord, timing: Timing) -> int:
    (begin,) = begins_of(record.event_ms, timing.size_ms, timing.size_ms)
    return begin
