"""Shapes in which every output record is made from one input record, independently of those before it."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.loop import VirtualLoop
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.shape import SCHEMA, Content, DerivedShape, Headers, Produced

if TYPE_CHECKING:
    from tidegate.simulation.workload import InputRecord

NOBODY: Final = -1
"""The name of a tombstone that has lost its headers."""
DELETED_OF: Final = 5
"""One record in this many is a tombstone."""
ITEMS_OF: Final = 4
"""A record has fewer items than this; the array of a record without items may be NULL."""
BIG: Final = 3
"""Records with at least this quantity are exploded."""
ANSWER_FACTOR: Final = 3
REFUSED_OF: Final = 11
"""About one record in this many is never answered, and about as many are answered at the second call."""
ANSWER_S: Final = 0.08


class Spread(DerivedShape):
    """Tombstones, headers and keys that are passed on, and rows that are routed and exploded."""

    outputs = ("gone", "pieces", "rest")
    schema: ClassVar[Mapping[str, str]] = {**SCHEMA, "items": "array<bigint>"}
    source: ClassVar[Mapping[str, Any]] = {"metadata": {"key": "k", "partition": "part"}, "on_null": "tombstone"}
    growing = False  # records of `rest` go to the partition from which they come
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"name": "kinds", "from": "orders", "route": {"gone": "_deleted", "big": f"quantity >= {BIG}", "rest": "else"}},
        {"name": "dead_keys", "from": "kinds.gone", "select": {"k": "k", "_deleted": "_deleted"}},
        {"name": "items", "from": "kinds.big", "explode": {"items": "item", "position": "n", "outer": True}},
        {"name": "pieces", "from": "items", "select": {"id": "id", "customer": "customer", "n": "n", "item": "item"}},
        {"name": "others", "from": "kinds.rest", "select": {"id": "id", "customer": "customer", "part": "part"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_gone": {
            "topic": "gone",
            "from": "dead_keys",
            "key": "k",
            "headers": {"pass": "all"},
            "on_null": {"column": "_deleted", "write": "tombstone"},
        },
        "to_pieces": {
            "topic": "pieces",
            "from": "pieces",
            "key": "customer",
            "headers": {"pass": "all", "rename": {"trace": "origin"}, "add": {"n": "cast(n as string)"}},
        },
        "to_rest": {
            "topic": "rest",
            "from": "others",
            "key": "customer",
            "partition": "part",
            "headers": {"pass": "all", "drop": ["trace"]},
        },
    }

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        value = None if record.id % DELETED_OF == 1 else self._encode(record)
        return Record(record.customer.encode(), value, now_ms, _headers_of(record))

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {
            "tombstones passed on": sum(one.topic == "gone" for one in produced),
            "rows taken apart": sum(one.topic == "pieces" for one in produced),
        }

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        return [one for record in records for one in self._derive(record)]

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        if content.row is None:
            return int(dict(content.headers).get("id") or NOBODY)
        return (content.row["id"], content.row["n"]) if topic == "pieces" else content.row["id"]

    @staticmethod
    def _encode(record: InputRecord) -> bytes:
        row = {name: getattr(record, name) for name in SCHEMA}
        return msgspec.json.encode({**row, "items": _items_of(record)})

    @staticmethod
    def _derive(record: InputRecord) -> Iterator[Produced]:
        key, headers, row = (
            record.customer.encode(),
            _headers_of(record),
            {"id": record.id, "customer": record.customer},
        )
        lane, causes = (record.customer, record.place), frozenset({record.id})
        if record.id % DELETED_OF == 1:
            yield Produced("gone", record.id, lane, causes, Content(key, None, headers))
        elif record.quantity >= BIG:
            renamed = tuple(("origin" if name == "trace" else name, value) for name, value in headers)
            items: Sequence[tuple[int | None, int | None]] = list(enumerate(_items_of(record) or ())) or [(None, None)]
            for n, item in items:
                added = (*renamed, ("n", None if n is None else str(n).encode()))
                content = Content(key, {**row, "n": n, "item": item}, added)
                yield Produced("pieces", (record.id, n), lane, causes, content)
        else:
            kept = tuple(one for one in headers if one[0] != "trace")
            content = Content(key, {**row, "part": record.place.partition}, kept)
            yield Produced("rest", record.id, record.place, causes, content)


class Calls(DerivedShape):
    """Asynchronous calls per row, with answers in random order and some missing."""

    outputs = ("answers",)
    source: ClassVar[Mapping[str, Any]] = {"bad_records": "skip"}
    growing = False  # waiting rows move with their partitions, and their order is then not guaranteed
    waits = True
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {
            "name": "asked",
            "from": "orders",
            "async": "tidegate.simulation.shapes.stateless:Lookup",
            "output": {"answer": "bigint"},
            "retries": 2,
            "backoff": "20ms",
            "capacity": 12,
        },
        {"name": "answered", "from": "asked", "select": {"id": "id", "customer": "customer", "answer": "answer"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_answers": {"topic": "answers", "from": "answered", "key": "customer"}
    }

    @override
    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {"calls that nobody answers": len(records) - len(produced)}

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        return [
            _copy("answers", record, {"answer": record.id * ANSWER_FACTOR})
            for record in records
            if not is_refused(record.id)
        ]


class Lookup:
    """The function called by `Calls`, as a user would write it. It runs on the virtual loop of its slot.

    Each subtask has an object of its own.
    """

    def __init__(self) -> None:
        self._asked: set[int] = set()

    async def __call__(self, row: Mapping[str, Any]) -> dict[str, int]:
        """Returns the answer after a random time drawn from the seed."""
        number = row["id"]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(loop.random.uniform(0.0, ANSWER_S))
        if is_refused(number) or (number % REFUSED_OF == 1 and number not in self._asked):
            self._asked.add(number)
            raise ConnectionError("nobody answers")
        return {"answer": number * ANSWER_FACTOR}


def is_refused(number: int) -> bool:
    """Returns whether a record is never answered."""
    return number % REFUSED_OF == 0


class _Copies(DerivedShape):
    """Records passed on unchanged."""

    outputs = ("copies",)
    bounded = False
    steps: ClassVar[Sequence[Mapping[str, Any]]] = [
        {"name": "rows", "from": "orders", "select": {"id": "id", "customer": "customer"}}
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_copies": {"topic": "copies", "from": "rows", "key": "customer"}
    }

    @override
    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        return [_copy("copies", record, {}) for record in records]


class NewTopics(_Copies):
    """Topics that a pattern finds while the pipeline runs."""

    source: ClassVar[Mapping[str, Any]] = {"pattern": "orders.*"}
    new_topics = True


class LostInput(_Copies):
    """Retention removes unread input, and the pipeline continues after it."""

    source: ClassVar[Mapping[str, Any]] = {"on_lost_input": "continue"}
    growing = False
    exactly_once = True
    forgetful = True


def _copy(topic: str, record: InputRecord, more: Mapping[str, Any]) -> Produced:
    content = Content(record.customer.encode(), {"id": record.id, "customer": record.customer, **more})
    return Produced(topic, record.id, (record.customer, record.place), frozenset({record.id}), content)


def _headers_of(record: InputRecord) -> Headers:
    """Returns headers with repeated names, and with values that are NULL, empty, or not text."""
    trace = (None, b"", b"\xff\x00", b"t")[record.id % 4]
    return ("id", str(record.id).encode()), ("trace", trace), ("trace", b"again")


def _items_of(record: InputRecord) -> list[int] | None:
    count = record.id % ITEMS_OF
    if not count:
        return None if record.id % 8 else []
    return [record.id * 10 + n for n in range(count)]
