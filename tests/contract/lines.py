"""The lines of the contract by id: those that this release keeps, and those deferred to a later one.

F: fault tolerance, B: barrier handling, C: coordinator, W: watermarks, S: serializers of state. A line moves from
PENDING to COVERED together with the tests that name it.
"""

from __future__ import annotations

LAST = {"F": 29, "B": 50, "C": 41, "W": 32, "S": 23}
"""Maps a group to the number of its last line; the first is 01."""


def ids(group: str, *spans: int | tuple[int, int]) -> frozenset[str]:
    """Returns ids by numbers and ranges: `ids("F", 1, (3, 5))` is F01, F03, F04, F05."""
    numbers: set[int] = set()
    for span in spans:
        first, last = (span, span) if isinstance(span, int) else span
        numbers.update(range(first, last + 1))
    return frozenset(f"{group}{number:02}" for number in numbers)


ALL = frozenset[str]().union(*(ids(group, (1, last)) for group, last in LAST.items()))

COVERED = (
    ids("F", (1, 29))
    | ids("B", (1, 41), (43, 50))
    | ids("C", (1, 41))
    | ids("W", (1, 5), (7, 22), (25, 32))
    | ids("S", (1, 23))
)
"""Kept by this release: at least one test names each line."""

PENDING: dict[str, frozenset[str]] = {
    "a source ends by its final barrier, so no channel ends during an alignment; this, and the end of input in B02, "
    "come back when a bounded source ends event time": ids("B", 42),
    "only sources make watermarks: no step makes its own, so there is none to block or to take the place of the ones "
    "from upstream": ids("W", 6, 23),
    "a plan has no feedback edge: it is a graph without cycles, whose vertices are in topological order": ids("W", 24),
}
"""Maps a reason to the lines that no test has to name yet."""
