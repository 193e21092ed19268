"""Compares the output with what a shape derives.

Each lane comes out completely, once, in order, and in one output partition. After a restore, everything after the
restored positions comes again, and nothing before them. Rows that waited in a checkpoint are the exception: they
precede its positions and come out after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from typing_extensions import override

from tidegate.simulation.shapes.shape import Content, DerivedShape, Produced

if TYPE_CHECKING:
    from tidegate.simulation.workload import InputRecord

SHOWN: Final = 6

Names = Mapping[str, AbstractSet[Hashable]]
"""Topic -> the names of the records that have come out."""


class OracleHistory(msgspec.Struct, frozen=True):
    """A part of the output. A new history begins whenever a savepoint or an older checkpoint is restored."""

    done: frozenset[int]
    """Records that were processed before this history."""
    output: Mapping[str, Sequence[Sequence[Any]]]
    """Topic -> partition -> rows or contents, as a read-committed reader sees them."""


class Oracle(Protocol):
    """Judges the output of a workload."""

    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        """Returns whether everything has come out.

        `now`: the output since a restore that continued after `done`.
        """

    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        """Returns everything that is wrong with the output. All but the last history may end anywhere."""

    def count(self, histories: Sequence[OracleHistory]) -> Mapping[str, int]:
        """Counts the situations that the output, or its input, shows."""


class ShapeOracle(Oracle):
    """The oracle of one shape and the records that are to be processed."""

    def __init__(
        self, shape: DerivedShape, records: Sequence[InputRecord], *, exactly_once: bool, ordered: bool
    ) -> None:
        self._shape = shape
        self._exactly_once = exactly_once
        self._ordered = ordered
        self._wanted: dict[str, dict[Hashable, Produced]] = {topic: {} for topic in shape.outputs}
        produced = shape.derive(records)
        for one in produced:
            self._wanted[one.topic][one.name] = one
        self._counts = shape.count(records, produced)

    @override
    def is_complete(self, done: AbstractSet[int], now: Names, ever: Names) -> bool:
        return all(
            name in (ever if one.causes <= done else now)[topic]
            for topic, wanted in self._wanted.items()
            for name, one in wanted.items()
            if not one.causes <= done or self._shape.waits
        )

    @override
    def count(self, histories: Sequence[OracleHistory]) -> Mapping[str, int]:
        return self._counts

    @override
    def check(self, histories: Sequence[OracleHistory]) -> list[str]:
        return [problem for topic in self._wanted for problem in self._check_topic(topic, histories)[:SHOWN]]

    def _check_topic(self, topic: str, histories: Sequence[OracleHistory]) -> list[str]:
        wanted, problems = self._wanted[topic], list[str]()
        lanes: dict[Hashable, list[Hashable]] = defaultdict(list)
        for name, one in wanted.items():
            lanes[one.lane].append(name)
        ever: set[Hashable] = set()
        for history in histories:
            partitions = history.output[topic]
            never = [name for name, one in wanted.items() if one.causes <= history.done and name not in ever]
            if never and not self._shape.waits:
                problems.append(f"{topic}: continued after records that have never come out: {never[:SHOWN]}")
            problems += self._check_contents(topic, partitions)
            came = {lane: list[Hashable]() for lane in lanes}
            for name in (self._shape.name_of(topic, content) for partition in partitions for content in partition):
                ever.add(name)
                if name in wanted:
                    came[wanted[name].lane].append(name)
            last = history is histories[-1]
            for lane, names in lanes.items():
                problem = self._check_lane(topic, names, came[lane], history.done, last=last)
                problems += [f"{topic}: lane {lane}: {problem}"] if problem else []
        lost = [name for name in wanted if name not in ever]
        return [*problems, f"{topic}: {len(lost)} records are lost: {lost[:SHOWN]}"] if lost else problems

    def _check_contents(self, topic: str, partitions: Sequence[Sequence[Content]]) -> list[str]:
        """Checks that each record is expected and correct, and that each lane is in one partition."""
        wanted, problems = self._wanted[topic], []
        homes: dict[Hashable, int] = {}
        for number, partition in enumerate(partitions):
            for content in partition:
                one = wanted.get(self._shape.name_of(topic, content))
                if one is None:
                    problems.append(f"{topic}: {content} is unexpected")
                elif one.content != content:
                    problems.append(f"{topic}: {content} where {one.content} was expected")
                elif homes.setdefault(one.lane, number) != number:
                    problems.append(f"{topic}: lane {one.lane} is in partitions {homes[one.lane]} and {number}")
        return problems

    def _check_lane(
        self, topic: str, names: Sequence[Hashable], came: Sequence[Hashable], done: AbstractSet[int], *, last: bool
    ) -> str:
        """Returns what is wrong with the records of a lane in one history, or ""."""
        wanted = self._wanted[topic]
        before = {name for name in names if wanted[name].causes <= done}
        after = [name for name in names if name not in before]
        if last and (missing := [name for name in after if name not in set(came)]):
            return f"{missing[:SHOWN]} are missing"
        if not self._exactly_once:
            return ""
        if len(came) > len(set(came)):
            return f"duplicates in {came}"
        again = [name for name in came if name in before]
        if again and not self._shape.waits:
            return f"{again[:SHOWN]} came again after going back to a place after them"
        if not self._ordered:
            return ""
        order = {name: index for index, name in enumerate(names)}
        numbers = [order[name] for name in came]
        if numbers != sorted(numbers):
            return f"{came} is not the order of {names}"
        rest = [name for name in came if name not in before]
        return f"{rest} is not how {after} begins" if rest != after[: len(rest)] else ""
