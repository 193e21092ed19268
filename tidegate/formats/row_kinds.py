"""Kinds of rows in a changelog: inserted or retracted, alone or as one side of an update. Does not import Polars.

A source of a changelog adds the kind to each row if an operator downstream processes retractions (ADR 51). The kind is
a system column, so filters, selections and exchanges pass it on unchanged. Rows without it are inserts.
"""

from __future__ import annotations

from typing import Final

ROW_KIND: Final = "__tidegate_kind"
"""Name of the column. Its numbers are those of Flink's `RowKind`."""
INSERT: Final = 0
UPDATE_BEFORE: Final = 1
"""Retraction of the row before an update. `UPDATE_AFTER` of the same record is the row after it."""
UPDATE_AFTER: Final = 2
DELETE: Final = 3
"""Retraction of a deleted row."""
RETRACTING: Final = frozenset({UPDATE_BEFORE, DELETE})

BEFORE: Final = "__tidegate_before."
"""Prefix of the columns that hold the row before an update. They exist from the decoder to the end of the source, where
each update becomes two rows.
"""
