"""Lookups in a table, and the changes of a table.

The version of a table row is the number of its record. Which version a row of the stream gets depends on which topic is
read faster. The rows of a key in the table's topic are a sequence of states, the first of which is "no row". When an
attempt begins, the gate holds the stream until everything in the table's topic has been applied. So a row that an
attempt has read gets a state that is at least as new as that moment, and the states never go back for rows of one key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.oracle import Names, Oracle, OracleHistory
from tidegate.simulation.shapes.shape import (
    DEAD_TOPIC,
    Content,
    ContentShape,
    Step,
    alternate,
)

if TYPE_CHECKING:
    from tidegate.simulation.timing import Timing
    from tidegate.simulation.workload import InputRecord

STREAM: Final = "orders"
TABLE: Final = "customers"
DELETED_OF: Final = 4
"""One record of the table in this many is a tombstone."""
NULL_OF: Final = 9
"""One record of the stream in this many has a NULL key."""
WAIT_MS: Final = 700
SHOWN: Final = 6
OUTPUT: Final = "enriched"
CHANGES: Final = "current"
_TABLE: Final[Mapping[str, Any]] = {
    "schema": {"version": "bigint", "cents": "bigint"},
    "metadata": {"key": "id"},
    "on_null": "tombstone",
}
_STEP: Final[Step] = {"name": "customer", "from": TABLE, "table": {"key": "id"}}


class LookupShape(ContentShape):
    """Orders with the version of their customer's row."""

    inputs = (STREAM, TABLE)
    outputs = (OUTPUT,)
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {TABLE: _TABLE}
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_enriched": {"topic": OUTPUT, "from": "rows", "key": "customer"}
    }
    exactly_once = True
    growing = False  # the records of a key are in one partition
    bounded = False

    def __init__(self, missing: str = "null", *, gated: bool = True) -> None:
        self.missing = missing
        self.gated = gated
        self.letters = missing == "fail"  # type: ignore[misc]  # the other shapes have it once for all

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        missing = f"wait {WAIT_MS}ms" if self.missing == "wait" else self.missing
        return [
            _STEP,
            {
                "name": "looked-up",
                "from": STREAM,
                "lookup": "customer",
                "on": {"customer": "id"},
                "missing": missing,
                "add": {"version": "customer.version"},
                "begin": "caught-up" if self.gated else "immediately",
            },
            {
                "name": "rows",
                "from": "looked-up",
                "select": {"id": "id", "customer": "customer", "version": "version"},
            },
        ]

    @override
    def choose_inputs(self, topics: Sequence[str], now_s: float, timing: Timing | None) -> Sequence[str]:
        return alternate(topics, now_s)

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        if record.place.topic == TABLE:
            return _dress_row(record, now_ms)
        row = {**msgspec.json.decode(record.value), "customer": key_of(record)}
        return Record(record.customer.encode(), msgspec.json.encode(row), now_ms)


class TableShape(ContentShape):
    """The changes of a table: for each batch the net effect on each key."""

    inputs = (TABLE,)
    outputs = (CHANGES,)
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {TABLE: _TABLE}
    steps: ClassVar[Sequence[Step]] = [_STEP]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_current": {"topic": CHANGES, "from": "customer", "key": "id"}
    }
    exactly_once = True
    growing = False
    bounded = False

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        return _dress_row(record, now_ms)

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return content.row["version"], content.row["_deleted"]


def key_of(record: InputRecord) -> str | None:
    """Returns the key that a record of the stream is looked up by."""
    return None if record.id % NULL_OF == NULL_OF - 1 else record.customer


def is_deleted(record: InputRecord) -> bool:
    """Returns whether a record of the table is a tombstone."""
    return record.id * 7 % DELETED_OF == 1


def _dress_row(record: InputRecord, now_ms: int) -> Record:
    row = None if is_deleted(record) else msgspec.json.encode({"version": record.id, "cents": record.price_cents})
    return Record(record.customer.encode(), row, now_ms)


class AttemptStart(msgspec.Struct, frozen=True):
    """What was there when an attempt began."""

    visible: frozenset[int]
    """Records that a reader could see: those before an open transaction of another producer."""
    processed: frozenset[int]
    """Records before the positions that it began with."""


class LookupOracle(Oracle):
    """The oracle of one workload, given how its attempts have begun, per history."""

    def __init__(
        self, shape: LookupShape, arrived: Sequence[InputRecord], starts: Sequence[Sequence[AttemptStart]]
    ) -> None:
        self._shape = shape
        self._starts = starts
        self._orders = {one.id: one for one in arrived if one.place.topic == STREAM}
        self._states, self._numbers = _states_of(arrived)

    @override
    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        return not self._find_missing(done, set().union(*now.values()), set().union(*ever.values()))

    @override
    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        problems: list[str] = []
        ever: set[Hashable] = set()
        for number, history in enumerate(histories):
            letters = [row for partition in history.output.get(DEAD_TOPIC, ()) for row in partition]
            problems += self._check_letters(number, letters)
            came = [row["id"] for row in letters]
            for place, partition in enumerate(history.output[OUTPUT]):
                rows = [content.row for content in partition]
                problems += self._check_partition(number, f"{OUTPUT}[{place}]", rows)
                came += [row["id"] for row in rows]
            problems += self._check_once(came, history.done)
            ever |= set(came)
            if history is histories[-1] and (missing := self._find_missing(history.done, set(came), ever)):
                problems.append(f"{OUTPUT}: {len(missing)} records are lost: {missing[:SHOWN]}")
        return problems

    @override
    def count(self, histories: Sequence[OracleHistory]) -> Mapping[str, int]:
        rows = [content.row for history in histories for part in history.output[OUTPUT] for content in part]
        found = sum(row["version"] is not None for row in rows)
        return {
            "lookups that found a row": found,
            "lookups that found none": len(rows) - found,
            "lookups that failed": sum(map(len, histories[-1].output.get(DEAD_TOPIC, ()))),
            "tombstones of tables": sum(states.count(None) - 1 for key, states in self._states.items() if key),
        }

    def _find_missing(
        self, done: AbstractSet[int], now: AbstractSet[Hashable], ever: AbstractSet[Hashable]
    ) -> list[int]:
        return [
            number
            for number, order in self._orders.items()
            if number not in (ever if number in done else now)
            and not (self._shape.missing == "drop" and self._may_find(len(self._starts) - 1, order, None))
        ]

    def _check_once(self, came: Sequence[int], done: AbstractSet[int]) -> list[str]:
        problems = []
        if len(set(came)) < len(came):
            twice = sorted(number for number in set(came) if came.count(number) > 1)
            problems.append(f"{OUTPUT}: records {twice[:SHOWN]} are duplicated")
        if strange := [number for number in came if number not in self._orders]:
            problems.append(f"{OUTPUT}: {strange[:SHOWN]} are unexpected")
        again = [number for number in came if number in done]
        if again and self._shape.missing not in ("wait", "fail"):  # rows and dead letters may wait in the checkpoint
            problems.append(f"{OUTPUT}: {again[:SHOWN]} came again after going back to a place after them")
        return problems

    def _check_letters(self, history: int, letters: Sequence[Mapping[str, Any]]) -> list[str]:
        problems = []
        for row in letters:
            order = self._orders.get(row["id"])
            if order is None or row["place"] != str(order.place):
                problems.append(f"{DEAD_TOPIC}: {row} belongs to no input record")
            elif not self._may_find(history, order, None):
                problems.append(f"{DEAD_TOPIC}: record {order.id} failed although {key_of(order)} had a row")
        return problems[:SHOWN]

    def _check_partition(self, history: int, where: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Checks that rows of a key get states that are new enough and never go back, and are in order themselves."""
        problems = []
        reached: dict[str | None, int] = defaultdict(int)
        newest: dict[tuple[str | None, object], int] = {}
        for row in rows:
            order = self._orders.get(row["id"])
            if order is None:
                continue
            key, version = key_of(order), row["version"]
            if row["customer"] != key or (version is None and self._shape.missing in ("drop", "fail")):
                problems.append(f"{where}: {row} is unexpected")
            least = max(self._least(history, order), reached[key])
            found = next((at for at in range(least, len(self._states[key])) if self._states[key][at] == version), None)
            if found is None:
                states = self._states[key]
                problems.append(f"{where}: {row} where one of {states[least:]} was expected, after {states[:least]}")
            else:
                reached[key] = found
            lane = key, order.place
            if key is not None and newest.get(lane, -1) > order.id:
                problems.append(f"{where}: key {key}: record {order.id} comes after {newest[lane]}")
            newest[lane] = order.id
        return problems[:SHOWN]

    def _may_find(self, history: int, order: InputRecord, version: int | None) -> bool:
        states = self._states[key_of(order)]
        return version in states[self._least(history, order) :]

    def _least(self, history: int, order: InputRecord) -> int:
        """Returns the oldest state that a row may get."""
        key = key_of(order)
        if key is None:
            return 0
        numbers = self._numbers[key]
        return max(
            (
                sum(number in (start.visible if self._shape.gated else start.processed) for number in numbers)
                for start in self._starts[history]
                if order.id not in start.processed
            ),
            default=0,
        )


class TableOracle(Oracle):
    """The oracle of the changes of a table: for each key a path through its states that ends in the last one."""

    def __init__(self, arrived: Sequence[InputRecord]) -> None:
        self._states, self._numbers = _states_of(arrived)

    @override
    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        last = [states[-1] for states in self._states.values()]
        return all((one, False) in (ever if one in done else now)[CHANGES] for one in last if one is not None)

    @override
    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        problems = []
        for history in histories:
            paths: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
            for partition in history.output[CHANGES]:
                for content in partition:
                    paths[content.row["id"]].append(content.row)
            for key in {*paths, *self._states}:
                last = history is histories[-1]
                problems += self._check_path(str(key), paths.get(str(key), []), history.done, complete=last)
        return problems[: 2 * SHOWN]

    @override
    def count(self, histories: Sequence[OracleHistory]) -> Mapping[str, int]:
        rows = [content.row for history in histories for part in history.output[CHANGES] for content in part]
        return {"rows of tables deleted": sum(row["_deleted"] for row in rows), "changes of tables": len(rows)}

    def _check_path(
        self, key: str, rows: Sequence[Mapping[str, Any]], done: AbstractSet[int], *, complete: bool
    ) -> list[str]:
        """Checks that the rows of a key lead from one of its states to a later one, each time."""
        states, numbers = self._states[key], self._numbers[key]
        at = sum(number in done for number in numbers)
        for row in rows:
            version = None if row["_deleted"] else row["version"]
            deletes = version is None and row["version"] == states[at]
            found = next((later for later in range(at + 1, len(states)) if states[later] == version), None)
            if found is None or (version is None and not deletes):
                return [f"{CHANGES}: {row} after {states[: at + 1]}, where {states[at + 1 :]} follow"]
            at = found
        if complete and states[at] != states[-1]:
            return [f"{CHANGES}: the last row of {key} is {states[at]} and not {states[-1]}"]
        return []


def _states_of(arrived: Sequence[InputRecord]) -> tuple[dict[str | None, list[int | None]], dict[str, list[int]]]:
    """Returns for each key the versions of its row, in order, and the records of the table from the second one on.

    None: there is no row.
    """
    states: dict[str | None, list[int | None]] = defaultdict(lambda: [None])
    numbers: dict[str, list[int]] = defaultdict(list)
    for one in arrived:
        if one.place.topic == TABLE:
            states[one.customer].append(None if is_deleted(one) else one.id)
            numbers[one.customer].append(one.id)
    return states, numbers
