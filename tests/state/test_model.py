"""Random lives of a state in several subtasks, with deletes, scans and changes of their number, against a dict."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.depth import DEPTH
from tests.state.driving import GROUPS, Backend
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.columns import make_column
from tidegate.ids import CheckpointId, StateName
from tidegate.state.base import KeyedState, Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.increments import Capture

Row = tuple[int | None, str | None, int | None]
Content = dict[Row, int]

DECLARED = StateDeclaration(
    StateName("totals"),
    StateShape(
        keys=(StateField("t", BIGINT), StateField("k", STRING), StateField("u", BIGINT)),
        values=(StateField("n", BIGINT, nullable=False),),
        key_hash="sum of bytes",
        max_parallelism=GROUPS,
        suffix=1,
        prefix=1,
    ),
)
TEXTS = st.one_of(st.none(), st.text(alphabet="ab\x00\x01é☃", max_size=3))
NUMBERS = st.one_of(st.none(), st.integers(-2, 2), st.sampled_from((-(2**63), 2**63 - 1)))
TIMES = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.tuples(TIMES, TEXTS, NUMBERS)
FILLED: Final[tuple[Row, ...]] = tuple(
    (number % 3, key, number) for key in (None, "", "a", "b", "ab") for number in range(-2, 6)
)


def group_of(key: str | None) -> int:
    return sum((key or "").encode()) % GROUPS


def sort_key(row: Row) -> tuple[tuple[bool, int], tuple[bool, str], tuple[bool, int]]:
    time, key, number = row
    return (time is not None, time or 0), (key is not None, key or ""), (number is not None, number or 0)


class Flight:
    """A checkpoint that is not decided: what was captured, and what it has to restore."""

    def __init__(self, captures: Sequence[Capture[str]], expected: Content) -> None:
        self.captures = captures
        self.expected = expected


class Life(RuleBasedStateMachine):
    """Subtasks of one operator. `name` is the backend's."""

    name = "memory"
    declared = DECLARED

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.gettempdir())
        self._backend = Backend(self.name, self._directory)
        self._model: Content = {}
        self._states: list[KeyedState[str]] = []
        self._files: dict[str, bytes] = {}
        self._kept: list[tuple[list[str], Content]] = []
        self._flights: dict[int, Flight] = {}
        self._next = self._begun = 1
        self._retained = 1

    @initialize(parallelism=st.integers(1, 3), retained=st.integers(1, 2))
    def open(self, parallelism: int, retained: int) -> None:
        self._retained = retained
        self._kept = [([], {})]
        self._start(parallelism)
        self.put(list(FILLED), 0)
        self._settle()

    def _settle(self) -> None:
        """A whole checkpoint, so that the next snapshots are increments."""
        self.snapshot()
        self.complete(len(self._flights) - 1)

    def _start(self, parallelism: int) -> None:
        """A new attempt from the newest checkpoint."""
        self._flights, self._begun = {}, self._next
        names, self._model = self._kept[-1][0], dict(self._kept[-1][1])
        self._states = [self._backend(self._retained, self.declared) for _ in range(parallelism)]
        for index, state in enumerate(self._states):
            state.restore([self._files[name] for name in names], Share(self._groups(index), index, parallelism))

    def _groups(self, index: int) -> range:
        count = len(self._states)
        return range(GROUPS * index // count, GROUPS * (index + 1) // count)

    def _owner(self, group: int) -> KeyedState[str]:
        return next(state for index, state in enumerate(self._states) if group in self._groups(index))

    def _parts(self, rows: Sequence[Row]) -> Iterator[tuple[KeyedState[str], list[Row]]]:
        for state in self._states:
            yield state, [row for row in rows if self._owner(group_of(row[1])) is state]

    @rule(rows=st.lists(ROWS, max_size=6), value=st.integers(0, 9))
    def put(self, rows: list[Row], value: int) -> None:
        for state, part in self._parts(rows):
            state.put_many(part, [(value,)] * len(part))
        self._model |= dict.fromkeys(rows, value)

    @rule(rows=st.lists(ROWS, max_size=6), value=st.integers(0, 9))
    def put_columns(self, rows: list[Row], value: int) -> None:
        """Adds to what is there, as a total does."""
        for state, part in self._parts(rows):
            keys = state.number_keys(
                [
                    make_column("", field.type, [row[place] for row in part])
                    for place, field in enumerate(DECLARED.shape.keys)
                ]
            )
            distinct = list(dict.fromkeys(part))
            assert len(distinct) == keys.count
            assert [distinct[number] for number in keys.numbers] == part
            exists, (old,) = state.get_columns(keys)
            assert exists.to_list() == [row in self._model for row in distinct]
            assert old.to_list() == [self._model.get(row) for row in distinct]
            new = old.fill_null(0) + value
            state.put_columns(keys, [new])
            self._model |= dict(zip(distinct, new.to_list(), strict=True))

    @rule(rows=st.lists(ROWS, max_size=2), places=st.lists(st.integers(0, 99), max_size=2))
    def delete(self, rows: list[Row], places: list[int]) -> None:
        there = sorted(self._model, key=sort_key)
        rows += [there[place % len(there)] for place in places if there]
        for state, part in self._parts(rows):
            state.delete_many(part)
        self._model = {row: value for row, value in self._model.items() if row not in rows}

    @rule(time=TIMES, key=TEXTS, limit=st.one_of(st.none(), st.integers(0, 2)), backwards=st.booleans())
    def scan_a_key(self, time: int | None, key: str | None, limit: int | None, backwards: bool) -> None:
        expected = [(row, (self._model[row],)) for row in sorted(self._model, key=sort_key) if row[:2] == (time, key)]
        expected = (expected[::-1] if backwards else expected)[:limit]
        state = self._owner(group_of(key))
        assert list(state.scan(group_of(key), (time, key), limit=limit, backwards=backwards)) == expected

    @rule(start=ROWS, columns=st.integers(1, 3), limit=st.one_of(st.none(), st.integers(0, 2)))
    def scan_from_a_key(self, start: Row, columns: int, limit: int | None) -> None:
        group, low = group_of(start[1]), sort_key(start)[:columns]
        after = [row for row in sorted(self._model, key=sort_key) if sort_key(row)[:columns] >= low]
        expected = [row for row in after if group_of(row[1]) == group][:limit]
        found = self._owner(group).scan(group, start=start[:columns], limit=limit)
        assert [row for row, _ in found] == expected

    @rule(group=st.integers(0, GROUPS - 1), backwards=st.booleans())
    def scan_a_group(self, group: int, backwards: bool) -> None:
        expected = [row for row in sorted(self._model, key=sort_key, reverse=backwards) if group_of(row[1]) == group]
        assert [row for row, _ in self._owner(group).scan(group, backwards=backwards)] == expected

    @rule(row=ROWS)
    def get(self, row: Row) -> None:
        expected = (self._model[row],) if row in self._model else None
        state = self._owner(group_of(row[1]))
        assert state.get(row) == expected
        assert [value for _, value in state.scan(group_of(row[1]), row)] == [
            value for value in (expected,) if value is not None
        ]
        assert sum(map(len, self._states)) == len(self._model)

    @precondition(lambda self: len(self._flights) < 3)
    @rule()
    def snapshot(self) -> None:
        number, self._next = self._next, self._next + 1
        captures = [state.capture(CheckpointId(number)) for state in self._states]
        self._flights[number] = Flight(captures, dict(self._model))

    @rule()
    def savepoint(self) -> None:
        number, self._next = self._next, self._next + 1
        captures = [state.capture(CheckpointId(number), full=True) for state in self._states]
        assert not any(capture.builds_on for capture in captures)
        files = [data for one in captures if one.encode is not None for data in one.encode()]
        assert self._read(files) == self._model

    @precondition(lambda self: bool(self._flights))
    @rule(choice=st.integers(0, 2))
    def complete(self, choice: int) -> None:
        number = list(self._flights)[choice % len(self._flights)]
        flight = self._flights[number]
        listed: list[str] = []
        for index, (state, capture) in enumerate(zip(self._states, flight.captures, strict=True)):
            own = []
            for part, data in enumerate(capture.encode() if capture.encode is not None else ()):
                own.append(f"{number}.{index}.{part}")
                self._files[own[-1]] = data
            if own:
                state.stored(CheckpointId(number), own)
            listed += [*capture.builds_on, *own]
        assert self._read([self._files[name] for name in listed]) == flight.expected
        for state in self._states:
            state.completed(CheckpointId(number))
        self._flights = {other: one for other, one in self._flights.items() if other > number}
        self._kept = [*self._kept, (listed, flight.expected)][-self._retained :]
        needed = {name for names, _ in self._kept for name in names}
        self._files = {name: data for name, data in self._files.items() if name in needed}

    @precondition(lambda self: bool(self._flights))
    @rule(choice=st.integers(0, 2))
    def abandon(self, choice: int) -> None:
        number = list(self._flights)[choice % len(self._flights)]
        del self._flights[number]
        for state in self._states:
            state.abandoned(CheckpointId(number))

    @precondition(lambda self: self._next >= self._begun + 4)
    @rule(parallelism=st.integers(1, 4))
    def restart(self, parallelism: int) -> None:
        self._backend.close()
        self._start(parallelism)
        self._settle()

    def _read(self, files: Sequence[bytes]) -> Content:
        """What files restore, into one subtask in memory."""
        state = Backend("memory", Path())(1, self.declared)
        state.restore(files, Share(range(GROUPS)))
        return {row: value[0] for group in range(GROUPS) for row, value in state.scan(group)}

    def teardown(self) -> None:
        self._backend.close()


class ColumnLife(Life):
    """The same without an order, in columns."""

    name = "columns"
    declared = msgspec.structs.replace(DECLARED, shape=msgspec.structs.replace(DECLARED.shape, prefix=0, suffix=0))


class RocksLife(Life):
    """The same in RocksDB."""

    name = "rocksdb"


@pytest.mark.slow
@pytest.mark.parametrize(("life", "examples"), [(Life, 50 * DEPTH), (ColumnLife, 20 * DEPTH), (RocksLife, 10 * DEPTH)])
def test_F01_F17_F28_whatever_happens_a_state_holds_what_a_dict_would(life: type[Life], examples: int) -> None:
    """What fails prints the steps that lead there, and the blob that repeats them."""
    run_state_machine_as_test(
        life,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("life", [Life, ColumnLife])
def test_F28_a_short_life_of_a_state_holds_what_a_dict_would(life: type[Life]) -> None:
    run_state_machine_as_test(
        life, settings=settings(max_examples=8, stateful_step_count=25, deadline=None, print_blob=True)
    )
