"""Copies rows of an output for a person to look at. Without a tap, it costs a comparison with None per batch.

A tap takes the first rows of the next batches, up to its limits, and sends them as JSON to the daemon, which masks
them. It changes nothing about the rows, and an error in it ends the tap, not the pipeline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.formats.registry import DEFAULT, FORMATS
from tidegate.formats.schemas import NO_OPTIONS
from tidegate.operators.spec import Columns
from tidegate.task.messages import RowsTapped, TapRows

if TYPE_CHECKING:
    import polars as pl

logger = logging.getLogger(__name__)


class RowTap:
    """One tap in one slot, for all outputs that it copies."""

    def __init__(self, order: TapRows, send: Callable[[RowsTapped], None]) -> None:
        self._order = order
        self._send = send
        self._rows_left = order.rows_max
        self._bytes_left = order.bytes_max

    def take(self, columns: Columns, frame: pl.DataFrame) -> None:
        """Copies rows of a batch, with these columns, while there is room. Never raises."""
        from polars.exceptions import PanicException

        if not self._rows_left or not frame.height:
            return
        try:
            self._copy(columns, frame)
        except (Exception, PanicException):
            logger.exception("rows could not be copied for a tap, which ends here; the pipeline is not affected")
            self._end()

    def _copy(self, columns: Columns, frame: pl.DataFrame) -> None:
        average_bytes = 1 + frame.estimated_size() // frame.height
        part = frame.head(min(self._rows_left, 1 + int(self._bytes_left // average_bytes)))
        encoded = FORMATS[DEFAULT].encoder(columns, NO_OPTIONS).encode(part)
        rows: list[bytes] = []
        for row in encoded.columns["value"]:
            if len(row) > self._bytes_left:
                self._send(RowsTapped(self._order.tap, tuple(rows)))
                self._end()
                return
            rows.append(row)
            self._bytes_left -= len(row)
        self._rows_left -= len(rows)
        self._send(RowsTapped(self._order.tap, tuple(rows)))

    def _end(self) -> None:
        """Takes no more rows, and reports it."""
        self._rows_left = 0
        self._send(RowsTapped(self._order.tap, (), full=True))
