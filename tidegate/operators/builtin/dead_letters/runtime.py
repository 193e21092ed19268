"""Requests the bytes of records that failed after they were decoded, by partition and offset, in order.

While a letter waits for its record, it is in the queue of asynchronous steps and in checkpoints. It is always emitted:
if its record cannot be read, the letter states this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from tidegate.formats.dead_letters import UNREAD, WANTED
from tidegate.formats.dead_letters.frames import DEAD_LETTER_SCHEMA, RawRecord, columns_of
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.calls.runtime import CallRuntime, gather_rows
from tidegate.operators.runtime import Out
from tidegate.operators.spec import Slot

if TYPE_CHECKING:
    from tidegate.operators.builtin.dead_letters import ReadBackOperator


class ReadBackRuntime(CallRuntime):
    """Reads records again. A request is (cluster, topic, partition, offset). An answer is a RawRecord, or text for the
    column `bytes` (`formats/dead_letters`).
    """

    def __init__(self, operator: ReadBackOperator, slot: Slot) -> None:
        if slot.open_reader is None:
            raise RuntimeError("this slot has no reader of records")
        reader = slot.open_reader(operator.origins_read, f"{operator.name}[{slot.subtask}]", slot.wake)
        super().__init__(operator, slot, reader, _requests)

    def _emit(self, calls: Sequence[PendingCall], out: Out) -> None:
        """Emits every letter, with or without the bytes of its record."""
        letters = pl.concat(gather_rows(calls))
        if all(call.answer is None and call.failure is None for call in calls):
            self._emit_parts(letters, out)
            return
        rows = letters.to_dicts()
        for row, call in zip(rows, calls, strict=True):
            if isinstance(call.answer, RawRecord):
                row.update(columns_of(call.answer))
            elif call.answer is not None or call.failure is not None:
                row["bytes"] = call.answer or UNREAD
        self._emit_parts(pl.DataFrame(rows, schema=DEAD_LETTER_SCHEMA), out)


def _requests(letters: pl.DataFrame) -> Sequence[object]:
    places = letters.select("cluster", "topic", "partition", "offset").rows()
    return [place if known == WANTED else None for known, place in zip(letters["bytes"], places, strict=True)]
