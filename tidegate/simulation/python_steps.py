"""The oracle of steps in Python with state and timers.

The output shows what the step has decided about each record: it has numbered it, it was late, or it failed. Everything
else follows from the numbered records of each key: their numbers have no gap, whatever failed in between and wherever
the step was restored; each is passed on once more by a timer that follows the clock; and each silence after them is
reported once the watermark has reached its end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.lateness import ObservedWatermark, RowOutcome, derive_limits, passed_by
from tidegate.simulation.shapes.oracle import Names, Oracle, OracleHistory
from tidegate.simulation.shapes.python_steps import AGAIN, NUMBERS, SILENT, PythonShape, PythonVisits
from tidegate.simulation.shapes.shape import DEAD_TOPIC, LATE_TOPIC, Content, Expected
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import InputRecord, Workload

SHOWN: Final = 6


class WatermarkFacts(msgspec.Struct, frozen=True):
    """What the oracle knows of event times."""

    timing: Timing
    never_late: frozenset[int]
    """Records that no watermark can have passed."""
    reached_ms: int | None
    """The watermark has reached at least this time when everything has been read."""
    highest_ms: int | None


class _Decided(msgspec.Struct, frozen=True):
    """What a history and those before it show about the records that are in the state of the step."""

    numbered: frozenset[int]
    unsure: frozenset[str]
    """Keys of which a record was numbered in one history and late in another one."""


class PythonOracle(Oracle):
    """The oracle of one workload. `timed` is None if there are no event times."""

    def __init__(self, shape: PythonShape, records: Sequence[InputRecord], timed: WatermarkFacts | None) -> None:
        self._shape = shape
        self._records = {one.id: one for one in records}
        self._failing = frozenset(one.id for one in records if shape.fails(one))
        self._timed = timed

    @override
    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        return not self._find_missing(done, now, ever)

    @override
    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        problems: list[str] = []
        ever: dict[str, set[Hashable]] = defaultdict(set)
        for history in histories:
            output = history.output
            names = {topic: self._names_in(topic, output) for topic in self._shape.topics}
            before = {topic: frozenset(known) for topic, known in ever.items()}
            now = {topic: frozenset(found) for topic, found in names.items()}
            for topic, found in names.items():
                ever[topic].update(found)
                if twice := [name for name, times in Counter(found).items() if times > 1]:
                    problems.append(f"{topic}: {twice[:SHOWN]} came more than once")
            problems += self._check_decisions(history.done, now)
            decided = self._decide(history.done, now, before)
            problems += self._check_numbers(output[NUMBERS], self._decide(history.done, {}, before))
            if self._timed is not None:
                problems += self._check_again(output[AGAIN], names[NUMBERS], decided)
                problems += self._check_silences(output[SILENT], decided, self._timed)
            if history is histories[-1]:
                problems += self._find_missing(history.done, now, ever)
        return problems

    @override
    def count(self, histories: Sequence[OracleHistory]) -> Mapping[str, int]:
        rows: Counter[str] = Counter()
        for history in histories:
            for topic, parts in history.output.items():
                rows[topic] += sum(map(len, parts))
        timers = sum(isinstance(row["id"], str) for one in histories for part in one.output[DEAD_TOPIC] for row in part)
        return {
            "rows of Python steps": rows[NUMBERS],
            "rows of Python steps that fail": rows[DEAD_TOPIC] - timers,
            "timers of Python steps that fail": timers,
            "rows of Python steps by event-time timers": rows[SILENT],
            "rows of Python steps by clock timers": rows[AGAIN],
            "late rows of Python steps": rows[LATE_TOPIC],
        }

    # -- what must be there --------------------------------------------------------------------------------------------

    def _find_missing(self, done: AbstractSet[int], now: Names, ever: Names) -> list[str]:
        found = {topic: self._required(topic, done, now, ever) for topic in (NUMBERS, DEAD_TOPIC)}
        if self._timed is not None:
            found |= {topic: self._required(topic, done, now, ever) for topic in (AGAIN, SILENT)}
        return [f"{topic}: {len(names)} rows are missing: {names[:SHOWN]}" for topic, names in found.items() if names]

    def _required(
        self,
        topic: str,
        done: AbstractSet[int],
        now: Mapping[str, AbstractSet[Hashable]],
        ever: Mapping[str, AbstractSet[Hashable]],
    ) -> list[Hashable]:
        """Returns what is missing in a topic."""
        decided = self._decide(done, now, ever)
        if topic == NUMBERS:  # or it was late, which shows in the other topic
            both_now, both_ever = (names[NUMBERS] | names.get(LATE_TOPIC, frozenset()) for names in (now, ever))
            wanted = self._records.keys() - self._failing
            return [one for one in sorted(wanted) if one not in (both_ever if one in done else both_now)]
        if topic == DEAD_TOPIC:
            failed: list[Hashable] = [*sorted(self._failing), *self._derive_failed_timers(decided)]
        elif topic == AGAIN:
            failed = [*sorted(decided.numbered)]
        else:
            failed = [one.name for one in self._derive_silences(decided) if self._is_due(one.due_ms)]
        # What a timer or a dead letter wrote may have waited in the checkpoint.
        return [name for name in failed if name not in (ever if self._may_precede(name, done) else now)[topic]]

    def _may_precede(self, name: Hashable, done: AbstractSet[int]) -> bool:
        """Returns whether it may have come out before a restore that continued after `done`."""
        if isinstance(name, int):
            return name in done
        assert self._timed is not None
        sku, last_ms = name if isinstance(name, tuple) else (name, None)
        times = [one.at for one in map(self._records.get, done) if one is not None and one.sku == sku and one.at]
        timing = self._timed.timing
        lowest_ms, highest_ms = passed_by([*self._records.values()], frozenset(done), timing)
        if timing.idle == "never":
            highest_ms = lowest_ms
        if highest_ms is None or not times or (last_ms is not None and last_ms not in times):
            return False
        return (min(times) if last_ms is None else last_ms) + timing.size_ms <= highest_ms

    def _decide(self, done: AbstractSet[int], now: Names, ever: Names) -> _Decided:
        """Returns which records the step has numbered. A history before this one shows it for those in `done`."""
        numbered_before = done & ever.get(NUMBERS, frozenset())
        late_before = done & ever.get(LATE_TOPIC, frozenset())
        numbered = frozenset(numbered_before) | frozenset(now.get(NUMBERS, ()))
        unsure = frozenset(self._records[one].sku for one in numbered_before & late_before)
        known = frozenset(one for one in numbered if isinstance(one, int) and one in self._records)
        return _Decided(known, unsure)

    def _derive_silences(self, decided: _Decided) -> list[Expected]:
        if self._timed is None or not isinstance(self._shape, PythonVisits):
            return []
        found = self._shape.derive([self._records[one] for one in decided.numbered], self._timed.timing)
        return [one for one in found if isinstance(one.name, tuple) and one.name[0] not in decided.unsure]

    def _derive_failed_timers(self, decided: _Decided) -> list[str]:
        """Returns the keys whose failing timer must have fired: it was set by one of their numbered records."""
        if self._timed is None:
            return []
        latest: dict[str, int] = {}
        for one in (self._records[number] for number in decided.numbered):
            assert one.at is not None
            latest[one.sku] = max(latest.get(one.sku, one.at), one.at)
        gap_ms = self._timed.timing.size_ms
        return [sku for sku, at in latest.items() if self._is_due(at + gap_ms)]

    def _is_due(self, due_ms: int | None) -> bool:
        """Returns whether the watermark has surely reached a time when everything has been read."""
        assert self._timed is not None and due_ms is not None
        return self._timed.reached_ms is not None and due_ms <= self._timed.reached_ms

    # -- what is there -------------------------------------------------------------------------------------------------

    def _names_in(self, topic: str, output: Mapping[str, Sequence[Sequence[Any]]]) -> list[Hashable]:
        rows = [row for part in output.get(topic, ()) for row in part]
        return [row["id"] if topic == DEAD_TOPIC else self._shape.name_of(topic, row) for row in rows]

    def _check_decisions(self, done: AbstractSet[int], now: Mapping[str, AbstractSet[Hashable]]) -> list[str]:
        """Checks that each record was decided upon once, and could be decided like that."""
        numbered, late = now[NUMBERS], now.get(LATE_TOPIC, frozenset())
        letters = {name for name in now[DEAD_TOPIC] if isinstance(name, int)}
        skus = {one.sku for one in self._records.values()} if self._timed is not None else set()
        wrong = {
            "are numbered and late": numbered & late,
            "came although the step fails for them": (numbered | late) & self._failing,
            "failed without a cause": letters - self._failing,
            "are of no key whose timer fails": now[DEAD_TOPIC] - letters - skus,
            "are unexpected": (numbered | late | letters) - self._records.keys(),
            "came again after going back to a place after them": (numbered | late) & done,
            "are not late": late & (frozenset() if self._timed is None else self._timed.never_late),
        }
        return [f"{[*map(str, names)][:SHOWN]} {what}" for what, names in wrong.items() if names]

    def _check_numbers(self, partitions: Sequence[Sequence[Content]], before: _Decided) -> list[str]:
        """Checks that the numbers of each key go on without a gap, in one partition."""
        problems: list[str] = []
        newest: dict[str, int] = Counter(self._records[one].sku for one in before.numbered)
        begun: set[str] = set()
        homes: dict[str, int] = {}
        for place, partition in enumerate(partitions):
            for content in partition:
                row, record = content.row, self._records.get((content.row or {}).get("id", -1))
                if row is None or record is None:
                    continue
                sku, number = record.sku, row["number"]
                if (row["sku"], content.key) != (sku, sku.encode()) or homes.setdefault(sku, place) != place:
                    problems.append(f"{NUMBERS}: {content} has another key, or is in another partition than before")
                if content.headers and dict(content.headers) != {"id": str(record.id).encode()}:
                    problems.append(f"{NUMBERS}: {content} has the headers of another record")
                unsure = sku in before.unsure and sku not in begun
                if number != newest.get(sku, 0) + 1 and not unsure:
                    problems.append(f"{NUMBERS}: {content} comes after number {newest.get(sku, 0)}")
                begun.add(sku)
                newest[sku] = number
        return problems[:SHOWN]

    def _check_again(
        self, partitions: Sequence[Sequence[Content]], numbered: Sequence[Hashable], decided: _Decided
    ) -> list[str]:
        """Checks that only numbered records are passed on once more, in their order."""
        problems: list[str] = []
        order = {name: index for index, name in enumerate(numbered)}
        newest: dict[str, int] = {}
        for content in (content for partition in partitions for content in partition):
            record = self._records.get((content.row or {}).get("id", -1))
            if record is None or record.id not in decided.numbered or content.key != record.sku.encode():
                problems.append(f"{AGAIN}: {content} is unexpected")
            elif record.id in order:
                if order[record.id] < newest.get(record.sku, 0):
                    problems.append(f"{AGAIN}: {content} comes after a later record")
                newest[record.sku] = order[record.id]
        return problems[:SHOWN]

    def _check_silences(
        self, partitions: Sequence[Sequence[Content]], decided: _Decided, timed: WatermarkFacts
    ) -> list[str]:
        problems: list[str] = []
        allowed = {one.name: one for one in self._derive_silences(decided)}
        newest: dict[str, int] = {}
        for content in (content for partition in partitions for content in partition):
            assert content.row is not None
            sku, last_ms = content.row["sku"], content.row["last_ms"]
            one = allowed.get((sku, last_ms))
            if sku in decided.unsure:
                continue
            if one is None or one.content != content:
                problems.append(f"{SILENT}: {content} where {one and one.content} was expected")
            elif timed.highest_ms is None or last_ms + timed.timing.size_ms > timed.highest_ms:
                problems.append(f"{SILENT}: {content} came out although no watermark has reached its end")
            if last_ms < newest.get(sku, last_ms):
                problems.append(f"{SILENT}: {content} comes after one of {newest[sku]}")
            newest[sku] = last_ms
        return problems[:SHOWN]


def derive_watermark_facts(workload: Workload, timing: Timing, reading: ObservedWatermark) -> WatermarkFacts:
    """Derives what the input shows about the watermarks."""
    limits = derive_limits(workload, timing, reading, timing.size_ms)
    never = [
        one.id for one in reading.records if one.at is not None and limits[one.id].outcome(one.at) is RowOutcome.COUNTED
    ]
    lowest, highest = passed_by(reading.records, frozenset(limits), timing)
    reached = lowest if timing.idle == "never" else highest
    return WatermarkFacts(timing, frozenset(never), reached, highest)
