"""Restores the rows of replayed dead letters in a slot, and sends each to its input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import polars as pl

from tidegate.formats.columns import make_column, polars_type
from tidegate.formats.dead_letters import NO_RECORD, RETRY_TRIES
from tidegate.formats.dead_letters.frames import DEAD_LETTER_SCHEMA, restore_value
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE
from tidegate.formats.row_kinds import ROW_KIND
from tidegate.operators.builtin.kafka_source import FailedDelivery
from tidegate.operators.builtin.retry import HEADERS, KEY, VALUE, RetryInput, RetryOperator
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.runtime import Out
from tidegate.operators.spec import DEAD, Requirement

_UNRESTORABLE: Final = (ValueError, TypeError, OverflowError, ArithmeticError, KeyError, pl.exceptions.PolarsError)
"""What values raise that are not of the type that the dead letter names."""


class RetryDelivery:
    """Restores rows from records of the retry topic. Every other record becomes a dead letter."""

    def __init__(self, operator: RetryOperator) -> None:
        self._operator = operator

    def deliver(self, frame: pl.DataFrame, out: Out) -> Sequence[FailedDelivery]:
        """Emits the rows of a batch, and dead letters about the records that it returns."""
        failed: list[FailedDelivery] = []
        again: list[Mapping[str, Any]] = []
        restored = self._restore(frame, failed, again)
        for (output, _), group in groupby(restored, key=lambda one: (one[0], one[1].columns)):
            out.side(output, pl.concat(rows for _, rows in group))
        if again:
            out.side(DEAD, pl.DataFrame(again, schema=DEAD_LETTER_SCHEMA))
        return failed

    def _restore(
        self, frame: pl.DataFrame, failed: list[FailedDelivery], again: list[Mapping[str, Any]]
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yields the output and the row of each record that can be delivered; adds the others to the lists."""
        for number, record in enumerate(frame.iter_rows(named=True)):
            place = record["__tidegate_partition"], record["__tidegate_offset"]
            headers = [(one["key"], one["value"]) for one in record[HEADERS] or ()]
            letter = read_dead_letter(*place, None, record[KEY], record[VALUE], headers)
            if letter is None or letter.pipeline != self._operator.pipeline:
                obstacle = f"is not a replayed dead letter of {self._operator.pipeline}"
                again.append(self._foreign(record, obstacle))
            else:
                fitting = self._operator.fit(letter)
                obstacle = fitting.obstacle
                if fitting.input is not None:
                    try:
                        yield (
                            fitting.input.output,
                            self._row_of(fitting.input, letter, fitting.row),
                        )
                    except _UNRESTORABLE as error:
                        obstacle = f"its row cannot be restored: {error}"
                if obstacle:
                    again.append(_letter_again(letter, obstacle))
            if obstacle:
                failed.append(FailedDelivery(*place, RecordFailure(number, FailureKind.CANNOT_RETRY, obstacle)))

    def _row_of(self, wanted: RetryInput, letter: DeadLetter, row: Mapping[str, Any]) -> pl.DataFrame:
        """Restores one row as the step received it. Raises one of `_UNRESTORABLE`."""
        columns = [make_column(name, kind, [restore_value(kind, row[name])]) for name, kind in wanted.columns]
        if Requirement.EVENT_TIME in wanted.carries:
            columns += [pl.Series(name, [row[name]], dtype=pl.Int64) for name in (TIME, BEHIND)]
        if wanted.has_kinds and row.get(ROW_KIND) is not None:
            columns.append(pl.Series(ROW_KIND, [row[ROW_KIND]], dtype=pl.Int8))
        if letter.source_partition is not None and letter.source_offset is not None:
            columns.append(pl.Series("__tidegate_partition", [letter.source_partition], dtype=pl.Int32))
            columns.append(pl.Series("__tidegate_offset", [letter.source_offset], dtype=pl.Int64))
            if self._operator.names_topic:
                columns.append(pl.Series("__tidegate_topic", [letter.topic], dtype=pl.String))
            if self._operator.names_cluster:
                columns.append(pl.Series("__tidegate_cluster", [letter.cluster], dtype=pl.String))
        if Requirement.HEADERS in wanted.carries:
            headers = [{"key": name, "value": value} for name, value in letter.headers]
            columns.append(pl.Series(CARRIED_HEADERS, [headers], dtype=polars_type(HEADERS_TYPE)))
        columns.append(pl.Series(RETRY_TRIES, [letter.tries + 1], dtype=pl.Int32))
        return pl.DataFrame(columns)

    def _foreign(self, record: Mapping[str, Any], obstacle: str) -> Mapping[str, Any]:
        return {
            "topic": self._operator.topics[0],
            "cluster": self._operator.cluster,
            "partition": record["__tidegate_partition"],
            "offset": record["__tidegate_offset"],
            "bytes": "original",
            "key": record[KEY],
            "value": record[VALUE],
            "headers": record[HEADERS],
            "step": self._operator.name,
            "kind": FailureKind.CANNOT_RETRY.value,
            "message": obstacle,
        }


def _letter_again(letter: DeadLetter, obstacle: str) -> Mapping[str, Any]:
    """Returns the same dead letter with another reason. It is about the original record and the step that failed."""
    return {
        "topic": letter.topic or None,
        "cluster": letter.cluster,
        "partition": letter.source_partition,
        "offset": letter.source_offset,
        "bytes": letter.known or NO_RECORD,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"key": name, "value": value} for name, value in letter.headers],
        "timestamp": letter.timestamp_ms,
        "step": letter.step,
        "kind": FailureKind.CANNOT_RETRY.value,
        "message": obstacle,
        "row": letter.row,
        "row_types": letter.row_types,
        "row_bytes": letter.row_size,
        "port": letter.port,
        "tries": letter.tries + 1,
    }
