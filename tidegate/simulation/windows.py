"""The expected results of windows over the committed input, in plain Python.

Every window of a key comes out once, with exactly those of its records that are not late for it, in window order. No
window comes out before its end has been passed. When everything has been read, all windows whose end has been passed
have come out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Final

import msgspec

from tidegate.simulation.lateness import (
    NEVER,
    ObservedWatermark,
    RowOutcome,
    Session,
    derive_early,
    derive_limits,
    derive_sessions,
    passed_by,
)
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.windowed import WIDE
from tidegate.simulation.timing import Timing, begins_of, day_of, derive_ms
from tidegate.simulation.workload import MOST_SUBTASKS, InputRecord, Workload

SHOWN: Final = 6
CHOICES_MAX: Final = 10
"""Maximum number of possibly late records in a window for which every choice is tried."""

Row = Mapping[str, Any]
Name = tuple[str, ...]
"""Key and start of a window."""
Total = tuple[int, ...]


class Windowed(msgspec.Struct, frozen=True):
    """A topic of windows."""

    key: tuple[str, ...]
    times: int = 1
    """Size factor compared with the windows of the timing, which it is made from."""
    sessions: bool = False


WINDOW_TOPICS: Final[Mapping[str, Windowed]] = {
    "windows": Windowed(("sku",)),
    "sessions": Windowed(("sku",), sessions=True),
    "visited": Windowed(("customer",)),
    "parts": Windowed(("sku", "customer")),
    "wide": Windowed(("customer",), WIDE),
}
COLUMNS: Final = ("orders", "revenue_cents", "id_sum", "first_id", "last_id")


class Pane(msgspec.Struct):
    """The records of one window."""

    sure: list[InputRecord]
    either: list[InputRecord]


def read_ms(value: str | int) -> int:
    """Reads a timestamp of the output as ms since 1970."""
    if isinstance(value, int):
        return value
    at = datetime.fromisoformat(value)
    return round(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)


def name_of(topic: str, row: Row) -> Name:
    """Returns the name of a row's window."""
    return *(row[column] for column in WINDOW_TOPICS[topic].key), str(read_ms(row["window_start"]))


def names_in(topic: str, record: InputRecord, timing: Timing) -> list[Name]:
    """Returns the names of the windows that contain a record.

    Sessions follow only from all records together, so there are none.
    """
    windowed = WINDOW_TOPICS[topic]
    if windowed.sessions:
        return []
    key = tuple(getattr(record, column) for column in windowed.key)
    if timing.zone:
        return [(*key, str(day_of(record.event_ms, timing.zone)[0]))]
    size_ms, every_ms = timing.size_ms * windowed.times, (timing.every_ms or timing.size_ms) * windowed.times
    return [(*key, str(begin)) for begin in begins_of(record.event_ms, size_ms, every_ms)]


def begin_of(name: Name) -> int:
    """Returns the first millisecond of a window."""
    return int(name[-1])


class WindowOracle:
    """The oracle of one workload, given the observed reading of its input."""

    def __init__(self, workload: Workload, timing: Timing, reading: ObservedWatermark) -> None:
        self._workload = workload
        self._timing = timing
        self._records = reading.records
        self._limits = {
            times: derive_limits(workload, timing, reading, timing.size_ms * times)
            for times in {1, *(WINDOW_TOPICS[topic].times for topic in self.topics)}
        }
        self._found = self._find_sessions()
        self._sessions = {_session_name(one): one for one in self._found}
        everything = frozenset(record.id for record in self._records)
        lowest, self._highest = passed_by(self._records, everything, timing)
        self._reached = lowest if timing.idle == "never" else self._highest
        """The watermark when everything has been read. Partitions that have caught up do not hold it back."""
        if timing.by_clock:
            self._reached = self._by_clock(reading)

    def _by_clock(self, reading: ObservedWatermark) -> int | None:
        """Returns a lower bound of the clocks: they have reached the last record, unless a clock has been set."""
        if reading.clocks_set or not reading.arrived:
            return None
        return min(max(record.event_ms for record in reading.arrived), derive_ms(reading.arrived[-1].arrived_s))

    @property
    def topics(self) -> list[str]:
        """Topics of windows."""
        return [topic for topic in self._workload.shape.outputs if topic in WINDOW_TOPICS]

    def outcome(self, topic: str, record: InputRecord, name: Name) -> RowOutcome:
        """Returns the outcome of a record in one of its windows.

        In a window over windows, it may already have been late for the inner one.
        """
        times, size_ms = WINDOW_TOPICS[topic].times, self._timing.size_ms
        outcome = self._limits[times][record.id].outcome(self._last_ms(topic, name) + self._timing.allowed_ms)
        if times == 1:
            return outcome
        (begin,) = begins_of(record.event_ms, size_ms, size_ms)
        return max(outcome, self._limits[1][record.id].outcome(begin + size_ms - 1), key=list(RowOutcome).index)

    def panes(self, topic: str) -> dict[Name, Pane]:
        """Returns every window that may contain a record."""
        if WINDOW_TOPICS[topic].sessions:
            return {name: Pane(one.records, []) for name, one in self._sessions.items()}
        panes: dict[Name, Pane] = defaultdict(lambda: Pane([], []))
        for record in self._records:
            for name in names_in(topic, record, self._timing):
                outcome = self.outcome(topic, record, name)
                if outcome is not RowOutcome.LATE:
                    (panes[name].sure if outcome is RowOutcome.COUNTED else panes[name].either).append(record)
        return panes

    def count_row_outcomes(self) -> Counter[RowOutcome]:
        """Counts the outcomes of records in windows."""
        topic = self.topics[0]
        if WINDOW_TOPICS[topic].sessions:
            counted = sum(len(one.records) for one in self._sessions.values())
            return Counter({RowOutcome.COUNTED: counted, RowOutcome.LATE: len(self._records) - counted})
        return Counter(
            self.outcome(topic, record, name)
            for record in self._records
            for name in names_in(topic, record, self._timing)
        )

    def missing(
        self,
        topic: str,
        done: frozenset[int],
        now: AbstractSet[Hashable],
        ever: AbstractSet[Hashable],
        sizes: Mapping[Name, Sequence[int]] | None = None,
    ) -> list[Name]:
        """Returns the windows that are missing in the output since a restore to a point after `done`.

        These are windows whose end has been passed. Those whose end had been passed somewhere in `done` may have come
        out before the restore. `sizes`: the number of records in each result, if there are early ones.
        """
        _, before = passed_by(self._records, done, self._timing)
        missing = []
        for name, pane in self.panes(topic).items():
            last_ms = self._last_ms(topic, name)
            whole = sizes is None or not self._timing.early_ms or self._is_whole(topic, pane, sizes.get(name, ()))
            passed = self._timing.by_clock or (before is not None and last_ms <= before)  # the clock advances by itself
            came = (name in now and whole) or (passed and name in ever)
            if pane.sure and not came and self._is_passed(last_ms):
                missing.append(name)
        return missing

    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        """Returns everything that is wrong with the output. All but the last history may end anywhere."""
        problems = []
        for topic in self.topics:
            panes = self.panes(topic)
            ever: set[Name] = set()
            for history in histories:
                partitions = history.output[topic]
                problems += self._check_closed(topic, panes, history.done, partitions, ever)
                ever |= {name_of(topic, row) for row in _rows(partitions)}
                if WINDOW_TOPICS[topic].sessions and self._timing.early_ms:
                    over = history is histories[-1]
                    problems += self._check_changes(topic, partitions, begun=bool(history.done), complete=over)
                    problems += self._check_order(topic, partitions)
                elif self._workload.exactly_once:
                    problems += self._check_rows(topic, panes, partitions, complete=history is histories[-1])
                    problems += self._check_order(topic, partitions)
                else:
                    problems += self._check_least(topic, panes, partitions)
            sizes: dict[Name, list[int]] = defaultdict(list)
            for row in _rows(histories[-1].output[topic]):
                sizes[name_of(topic, row)].append(row["orders"])
            lost = self.missing(topic, histories[-1].done, sizes.keys(), ever, sizes)
            if lost:
                problems.append(f"{topic}: {len(lost)} windows are lost: {lost[:SHOWN]}")
        return problems

    @staticmethod
    def _is_whole(topic: str, pane: Pane, sizes: Sequence[int]) -> bool:
        """Returns whether the last result has all records.

        After a session has ended, another one may begin at the same start and move to another name later. Its early
        results are newer.
        """
        return len(pane.sure) in (sizes if WINDOW_TOPICS[topic].sessions else sizes[-1:])

    def _last_ms(self, topic: str, name: Name) -> int:
        """Returns the last millisecond of a window."""
        if WINDOW_TOPICS[topic].sessions:
            return self._sessions[name].end_ms - 1 if name in self._sessions else NEVER
        if self._timing.zone:
            return day_of(begin_of(name), self._timing.zone)[1] - 1
        return begin_of(name) + self._timing.size_ms * WINDOW_TOPICS[topic].times - 1

    def _find_sessions(self) -> list[Session]:
        if not any(WINDOW_TOPICS[topic].sessions for topic in self.topics):
            return []
        return derive_sessions(self._records, self._timing)

    def _is_passed(self, last_ms: int) -> bool:
        """Returns whether the watermark passes this time when everything has been read."""
        return self._workload.bounded or (self._reached is not None and last_ms <= self._reached)

    def _check_rows(
        self, topic: str, panes: Mapping[Name, Pane], partitions: Sequence[Sequence[Row]], *, complete: bool
    ) -> list[str]:
        """Checks that each window comes once and is exact.

        With corrections, each result has more records than the previous one, and the last one is exact.
        """
        problems, newest, closed = [], dict[Name, Row](), set[Name]()
        for row in _rows(partitions):
            name = name_of(topic, row)
            if self._is_older_twin(topic, row):
                continue
            last_ms = self._last_ms(topic, name)
            if name not in panes or read_ms(row["window_end"]) != last_ms + 1:
                problems.append(f"{topic}: {row} belongs to no window")
                continue
            before = newest[name]["orders"] if name in newest and self._timing.early_ms else 0
            if before and name not in closed and before == row["orders"] == len(panes[name].sure):
                closed.add(name)  # the result on close, after an early result that was already complete
            elif name in newest and not self._corrects(row, newest[name]):
                problems.append(f"{topic}: window {name} is duplicated")
            if name in newest and self._timing.early_ms:
                problems += self._check_early(topic, newest[name], name, panes[name])
            newest[name] = row
            shut = self._workload.bounded or self._timing.by_clock or self._timing.early_ms
            if not shut and (self._highest is None or last_ms > self._highest):
                problems.append(f"{topic}: window {name} came out although no watermark has passed its end")
        for name, row in newest.items():
            pane = panes[name]
            if self._timing.early_ms and not (complete and self._is_passed(self._last_ms(topic, name))):
                problems += self._check_early(topic, row, name, pane)
            elif self._timing.allowed_ms and not complete:
                if row["orders"] > len(pane.sure) + len(pane.either):
                    problems.append(f"{topic}: {row} where at most {self._describe(topic, pane)} was expected")
            elif not self._fits(topic, row, pane):
                problems.append(f"{topic}: {row} where {self._describe(topic, pane)} was expected")
        return problems[:SHOWN]

    def _check_early(self, topic: str, row: Row, name: Name, pane: Pane) -> list[str]:
        """Checks that an early result holds the records older than some due time, perhaps without those late for it.

        It may also be the result on close, after which no further record is added.
        """
        every_ms, columns = self._timing.early_ms, self._columns(topic)
        for due_ms in range(begin_of(name) + every_ms, self._last_ms(topic, name) + 2, every_ms):
            older = [record for record in pane.sure if record.event_ms < due_ms]
            late = [record for record in older if self._limits[1][record.id].outcome(due_ms - 1) is RowOutcome.LATE]
            most, least = len(older), len(older) - len(late)
            exact = bool(older) and tuple(row[column] for column in columns) == self._total(topic, older)
            if exact or (late and least <= row["orders"] < most):
                return []
        return [f"{topic}: {row} is no early result of {self._describe(topic, pane)}"]

    def _check_changes(
        self, topic: str, partitions: Sequence[Sequence[Row]], *, begun: bool, complete: bool
    ) -> list[str]:
        """Checks early results of sessions: each is one at some due time or on close, and no superseded one remains.

        `begun`: a retracted result may have come out before this history. Unless `complete`, results may be retracted
        later.
        """
        problems = []
        final = self._found
        exact = {self._told(topic, one) for one in (*final, *derive_early(self._records, self._timing))}
        held: dict[Name, Row] = {}
        for row in _rows(partitions):
            name = name_of(topic, row)
            if row["_deleted"]:
                if (name not in held and not begun) or held.pop(name, row)["window_end"] != row["window_end"]:
                    problems.append(f"{topic}: {row} takes back what is not there")
                continue
            held[name] = row
            if (*name, read_ms(row["window_end"]), *(row[column] for column in COLUMNS)) not in exact:
                problems.append(f"{topic}: {row} is no result of a session")
        for name in held.keys() - self._sessions.keys() if complete else ():
            start_ms = begin_of(name)
            whole = [one for one in final if one.records[0].sku == name[0] and one.first_ms <= start_ms < one.end_ms]
            if whole and all(self._is_passed(one.end_ms - 1) for one in whole):
                problems.append(f"{topic}: {held[name]} was not taken back, which is part of another session")
        return problems[:SHOWN]

    def _is_older_twin(self, topic: str, row: Row) -> bool:
        """Returns whether a row is a session after whose end another one began at the same start."""
        if not WINDOW_TOPICS[topic].sessions:
            return False
        name = name_of(topic, row)
        told = (*name, read_ms(row["window_end"]), *(row[column] for column in COLUMNS))
        twins = (one for one in self._found if _session_name(one) == name and one is not self._sessions[name])
        return any(self._told(topic, one) == told for one in twins)

    def _told(self, topic: str, session: Session) -> tuple[Any, ...]:
        """Returns a session in the form of its result."""
        return session.records[0].sku, str(session.first_ms), session.end_ms, *self._total(topic, session.records)

    def _corrects(self, row: Row, before: Row) -> bool:
        """Returns whether a second result of a window may follow the first one."""
        return bool(self._timing.allowed_ms or self._timing.early_ms) and row["orders"] > before["orders"]

    def _check_least(self, topic: str, panes: Mapping[Name, Pane], partitions: Sequence[Sequence[Row]]) -> list[str]:
        """Checks windows with at-least-once: one may come again and count records again, but has all of its records."""
        problems = []
        for row in _rows(partitions):
            name = name_of(topic, row)
            if name not in panes:
                problems.append(f"{topic}: {row} belongs to no window")
                continue
            least = self._total(topic, panes[name].sure) if panes[name].sure else (0,) * len(COLUMNS)
            fewer = any(row[column] < value for column, value in zip(COLUMNS[:3], least, strict=False))
            if fewer and not self._timing.allowed_ms:
                problems.append(f"{topic}: {row} where at least {least} was expected")
        return problems[:SHOWN]

    def _check_closed(
        self,
        topic: str,
        panes: Mapping[Name, Pane],
        done: frozenset[int],
        partitions: Sequence[Sequence[Row]],
        ever: set[Name],
    ) -> list[str]:
        """Checks windows that were closed at a restored checkpoint: they came out before it and stay closed.

        A window is closed if all partitions had passed its end. A barrier overtakes watermarks if it is unaligned, or
        if they wait until idle channels have answered (ADR 52). Windows closed by such watermarks come out after the
        barrier.
        """
        passed, _ = passed_by(self._records, done, self._timing)
        overtaken = self._workload.unaligned_after_ms is not None or self._may_be_asked()
        if passed is None or overtaken or not self._workload.exactly_once:
            return []
        before = {name for name in panes if self._last_ms(topic, name) <= passed}
        closed = {name for name in before if self._last_ms(topic, name) + self._timing.allowed_ms <= passed}
        again = sorted(closed & {name_of(topic, row) for row in _rows(partitions)})
        never = sorted(name for name in before - ever if any(record.id in done for record in panes[name].sure))
        problems = []
        if again:
            problems.append(f"{topic}: windows that were closed came out again: {again[:SHOWN]}")
        if never:
            problems.append(f"{topic}: continued after windows that have never come out: {never[:SHOWN]}")
        return problems

    def _may_be_asked(self) -> bool:
        """Returns whether there may be idle channels: of a partition, or of a subtask without one."""
        return self._timing.idle != "never" or self._workload.partitions < MOST_SUBTASKS

    def _check_order(self, topic: str, partitions: Sequence[Sequence[Row]]) -> list[str]:
        """Checks that the windows of a key come in the order of their ends and in one output partition.

        Corrections are exempt from the order.
        """
        problems = []
        in_order = not self._timing.allowed_ms and not (self._timing.early_ms and self._overlapping(topic))
        newest: dict[Name, int] = {}
        homes: dict[Name, int] = {}
        for number, partition in enumerate(partitions):
            for row in partition:
                key, end_ms = name_of(topic, row)[:-1], read_ms(row["window_end"])
                if newest.get(key, -1) > end_ms and in_order:
                    problems.append(f"{topic}: key {key}: the window until {end_ms} comes after {newest[key]}")
                newest[key] = max(newest.get(key, -1), end_ms)
                if homes.setdefault(key[:1], number) != number:
                    problems.append(f"{topic}: key {key[:1]} is in partitions {homes[key[:1]]} and {number}")
        return problems[:SHOWN]

    def _overlapping(self, topic: str) -> bool:
        """Returns whether several windows of a key can be open at the same time and emit early results alternately."""
        return WINDOW_TOPICS[topic].sessions or self._timing.every_ms is not None

    def _fits(self, topic: str, row: Row, pane: Pane) -> bool:
        """Returns whether some choice of the possibly late records yields the row."""
        found = tuple(row[column] for column in self._columns(topic))
        if len(pane.either) > CHOICES_MAX:
            most, least = len(pane.sure) + len(pane.either), len(pane.sure)
            return bool(least <= row["orders"] <= most)
        return any(
            (chosen := [*pane.sure, *more]) and found == self._total(topic, chosen)
            for count in range(len(pane.either) + 1)
            for more in combinations(pane.either, count)
        )

    def _columns(self, topic: str) -> tuple[str, ...]:
        return (*COLUMNS, "parts") if WINDOW_TOPICS[topic].times > 1 else COLUMNS

    def _total(self, topic: str, records: Sequence[InputRecord]) -> Total:
        ids = [record.id for record in records]
        cents = sum(record.quantity * record.price_cents for record in records)
        total = len(ids), cents, sum(ids), min(ids), max(ids)
        if WINDOW_TOPICS[topic].times == 1:
            return total
        size_ms = self._timing.size_ms
        parts = {(record.sku, *begins_of(record.event_ms, size_ms, size_ms)) for record in records}
        return *total, len(parts)

    def _describe(self, topic: str, pane: Pane) -> str:
        sure = self._total(topic, pane.sure) if pane.sure else "nothing"
        numbers = [record.id for record in pane.sure], [record.id for record in pane.either]
        return f"{sure} (records {numbers[0]}, perhaps {numbers[1]})"


def _session_name(session: Session) -> Name:
    return session.records[0].sku, str(session.first_ms)


def _rows(partitions: Sequence[Sequence[Row]]) -> Iterator[Row]:
    return (row for partition in partitions for row in partition)
