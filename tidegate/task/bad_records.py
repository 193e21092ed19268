"""Records that stop the pipeline under `bad_records: fail`. Pure.

A batch passes through the operators one after another, so the first failure found need not belong to the first record:
a source may reject the third record before a step fails on the second. Therefore no error is raised while a batch is
being processed. Its bad records are collected, and the error names the first one of the lowest partition.
"""

from __future__ import annotations

from tidegate.errors import PipelineStopped
from tidegate.formats.failures import RecordFailure, RecordPlace

_REMEDY = (
    "nothing was lost. Correct the record's producer, the expression or the topic's settings. Or set bad_records: "
    "dead-letter to write such records to a topic of their own, or bad_records: skip to omit and count them"
)


class BadRecord(PipelineStopped):
    """A record could not be processed, and the pipeline file sets `bad_records: fail`."""

    code = "bad-record"


class FatalRecords:
    """The failures since the batch began."""

    def __init__(self) -> None:
        self._first: tuple[RecordPlace | None, str] | None = None
        self._places: set[RecordPlace] = set()
        self._without_place = 0

    def add(self, place: RecordPlace | None, where: str, failure: RecordFailure) -> None:
        """Adds a failure; the first one found for a record counts. `place` is None for a result of several records."""
        if place is None:
            self._without_place += 1
        else:
            self._places.add(place)
        if self._first is None or _precedes(place, self._first[0]):
            self._first = place, f"{where}: {failure}"

    def raise_first(self) -> None:
        """Raises BadRecord if any record has failed."""
        if self._first is None:
            return
        place, text = self._first
        more = len(self._places) + self._without_place - 1
        others = f"; its batch has {more} more bad record{'s' if more != 1 else ''}" if more else ""
        raise BadRecord(f"{text}{others}; {_REMEDY}", place=place)


def _precedes(place: RecordPlace | None, other: RecordPlace | None) -> bool:
    return place is not None and (other is None or place < other)
