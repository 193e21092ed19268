"""The oracle of shapes whose output follows from the records that are not late (`OnTimeShape`).

Every record is late, in time, or either (`lateness.py`). The topic of late rows shows what the pipeline has decided
about the latter; everything else must be as if exactly the other records had been there at once. Rows that wait for the
watermark come out after it has reached their time, not before, and all of them have come out in the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.lateness import (
    ObservedWatermark,
    RowOutcome,
    derive_limits,
    derive_limits_by_arrival,
    passed_by,
)
from tidegate.simulation.shapes.oracle import Names, Oracle, OracleHistory
from tidegate.simulation.shapes.shape import LATE_TOPIC, Content, Expected, OnTimeShape
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import Workload

SHOWN: Final = 6

_Names = Mapping[Hashable, Expected]


class OnTimeOracle(Oracle):
    """The oracle of one workload, given the observed reading of its input."""

    def __init__(self, shape: OnTimeShape, workload: Workload, timing: Timing, reading: ObservedWatermark) -> None:
        self._shape = shape
        self._timing = timing
        self._records = reading.records
        limits = (
            derive_limits_by_arrival(timing, reading)
            if shape.by_arrival
            else derive_limits(workload, timing, reading, timing.size_ms)
        )
        self._outcomes = {one.id: limits[one.id].outcome(shape.accepted_until(one, timing)) for one in self._records}
        self._late = [
            one.id for one in self._records if self._outcomes[one.id] is RowOutcome.LATE and shape.is_kept(one)
        ]
        """Records that must come out as late rows."""
        lowest, self._highest = passed_by(self._records, frozenset(self._outcomes), timing)
        self._reached = lowest if timing.idle == "never" else self._highest
        self._topics = [topic for topic in shape.outputs if topic != LATE_TOPIC]

    @override
    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        if any(number not in (ever if number in done else now)[LATE_TOPIC] for number in self._late):
            return False
        required, _ = self._derive(done, now[LATE_TOPIC], ever[LATE_TOPIC], complete=True)
        return all(
            name in (ever if one.is_made_from(done) else now)[one.topic]
            for name, one in required.items()
            if self._is_due(one)
        )

    @override
    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        problems = []
        ever: dict[str, set[Hashable]] = defaultdict(set)
        for history in histories:
            last = history is histories[-1]
            late = [int(self._shape.name_of(LATE_TOPIC, one)) for one in _contents(history.output[LATE_TOPIC])]  # type: ignore[call-overload]  # their names are numbers
            ever[LATE_TOPIC].update(late)
            problems += self._check_late(late, history.done, ever[LATE_TOPIC], complete=last)
            required, allowed = self._derive(history.done, set(late), ever[LATE_TOPIC], complete=last)
            for topic in self._topics:
                problems += self._check_rows(topic, history, allowed, ever[topic], required if last else {})
        return problems

    @override
    def count(self, histories: Sequence[OracleHistory]) -> Counter[str]:
        counts = Counter[str]()
        last = histories[-1]
        late = {self._shape.name_of(LATE_TOPIC, one) for one in _contents(last.output[LATE_TOPIC])}
        required, _ = self._derive(last.done, late, late, complete=True)
        for one in required.values():
            if one.due_ms is None or self._is_due(one):
                counts["rows that wait for the watermark" if one.due_ms is not None else "rows of joins"] += 1
        counts["late rows of joins"] = len(late)
        counts["records of joins: either"] = sum(one is RowOutcome.EITHER for one in self._outcomes.values())
        return counts

    def _is_due(self, one: Expected) -> bool:
        """Returns whether the record has come out when everything has been read."""
        return one.due_ms is None or (self._reached is not None and one.due_ms <= self._reached)

    def _may_be_due(self, one: Expected) -> bool:
        """Returns whether the record may have come out when everything has been read."""
        return one.due_ms is None or (self._highest is not None and one.due_ms <= self._highest)

    def _derive(
        self, done: AbstractSet[int], late: AbstractSet[Hashable], ever: AbstractSet[Hashable], *, complete: bool
    ) -> tuple[_Names, _Names]:
        """Returns what must come out of a history and what may, given its late rows and those until its end.

        Unless `complete`, records that may be late may not have been read yet.
        """
        sure, unsure = [], []
        for one in self._records:
            outcome = self._outcomes[one.id]
            if one.id in late:
                continue
            if outcome is RowOutcome.LATE:
                if not self._shape.is_kept(one):
                    unsure.append(one)
            elif outcome is RowOutcome.EITHER and (not complete or (one.id in done and one.id in ever)):
                unsure.append(one)
            else:
                sure.append(one)
        least = {one.name: one for one in self._shape.derive(sure, self._timing)}
        if not unsure:
            return least, least
        both = sorted([*sure, *unsure], key=lambda one: one.id)
        most = {one.name: one for one in self._shape.derive(both, self._timing)}
        required = {name: _with_any_of(one, most[name]) for name, one in least.items() if name in most}
        return required, {**least, **{name: _with_any_of(one, least.get(name, one)) for name, one in most.items()}}

    def _check_late(
        self, late: Sequence[int], done: AbstractSet[int], ever: AbstractSet[Hashable], *, complete: bool
    ) -> list[str]:
        problems = []
        in_time = [one for one in late if self._outcomes.get(one, RowOutcome.COUNTED) is RowOutcome.COUNTED]
        if in_time:
            problems.append(f"{LATE_TOPIC}: {in_time[:SHOWN]} are not late")
        if len(set(late)) < len(late):
            problems.append(f"{LATE_TOPIC}: duplicates in {late}")
        missing = [number for number in self._late if number not in (ever if number in done else late)]
        if missing and complete:
            problems.append(f"{LATE_TOPIC}: {missing[:SHOWN]} are missing")
        return problems

    def _check_rows(
        self, topic: str, history: OracleHistory, allowed: _Names, ever: set[Hashable], required: _Names
    ) -> list[str]:
        """Checks a topic of a history and adds its names to those that have ever come out."""
        problems = []
        came = Counter[Hashable]()
        homes: dict[bytes, int] = {}
        newest: dict[bytes | None, int] = {}
        for name, content, number in self._names_in(topic, history, allowed, ever):
            came[name] += 1
            one = allowed.get(name)
            if problem := self._check_row(one, content, history.done):
                problems.append(f"{topic}: {problem}")
            elif one is not None and one.due_ms is not None and self._shape.ordered:
                if one.due_ms < newest.get(content.key, one.due_ms):
                    problems.append(f"{topic}: {content} comes after one of {newest[content.key]}")
                newest[content.key] = one.due_ms
            if content.key is not None and homes.setdefault(content.key, number) != number:
                problems.append(f"{topic}: key {content.key!r} is in partitions {homes[content.key]} and {number}")
        if twice := [name for name, times in came.items() if times > 1]:
            problems.append(f"{topic}: {twice[:SHOWN]} came more than once")
        ever.update(came)
        missing = [
            name
            for name, one in required.items()
            if one.topic == topic
            and self._is_due(one)
            and name not in (ever if one.is_made_from(history.done) else came)
        ]
        if missing:
            problems.append(f"{topic}: {len(missing)} rows are missing: {missing[:SHOWN]}")
        return problems[: 2 * SHOWN]

    def _check_row(self, one: Expected | None, content: Content, done: AbstractSet[int]) -> str:
        """Returns what is wrong with a record where `one` is expected, or ""."""
        if one is None:
            return f"{content} is unexpected"
        if one.content != content:
            return f"{content} where {one.content} was expected"
        if one.due_ms is None:
            return f"{content} came again after going back to a place after it" if one.is_made_from(done) else ""
        if not self._may_be_due(one):
            return f"{content} came out although no watermark has reached {one.due_ms}"
        return ""

    def _names_in(
        self, topic: str, history: OracleHistory, allowed: _Names, ever: AbstractSet[Hashable]
    ) -> list[tuple[Hashable, Content, int]]:
        """Returns the records of a topic with their names and partitions."""
        names = [
            (self._shape.name_of(topic, content), content, number)
            for number, partition in enumerate(history.output[topic])
            for content in partition
        ]
        if not self._shape.repeats:
            return names
        numbers = self._first_numbers(Counter(name for name, _, _ in names), history.done, allowed, ever)
        found: list[tuple[Hashable, Content, int]] = []
        for name, content, number in names:
            found.append(((name, numbers[name]), content, number))
            numbers[name] += 1
        return found

    def _first_numbers(
        self, times: Mapping[Hashable, int], done: AbstractSet[int], allowed: _Names, ever: AbstractSet[Any]
    ) -> dict[Hashable, int]:
        """Returns the numbers of the first repetitions in a history.

        Where all causes of a record were processed before, a history may begin with any of the repetitions that have
        come out, and with the one that follows them. It is taken to begin with the last of these that leaves room for
        the others.
        """
        repeated: list[Any] = [
            name for name, one in allowed.items() if one.is_made_from(done) and self._may_be_due(one)
        ]
        possible, before = Counter(name for name, _ in repeated), Counter(name for name, _ in ever)
        return {name: max(0, min(before[name], possible[name] - times[name])) for name in times}


def _with_any_of(one: Expected, other: Expected) -> Expected:
    """Returns a record with what is enough for another one: what must have come out may have done so by a partner that
    may be late, and what must not come out again has had one that is not.
    """
    return msgspec.structs.replace(one, any_of=other.any_of)


def _contents(partitions: Sequence[Sequence[Any]]) -> list[Any]:
    return [content for partition in partitions for content in partition]
