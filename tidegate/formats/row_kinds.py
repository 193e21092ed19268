"""What rows of changes are: a row that is added or taken back, alone or as half of an update. Without Polars.

A source of changes gives each row its kind where somebody downstream takes rows back (ADR 51). The kind is a column of
the engine, so filters, selections and exchanges pass it on without a thought. Rows without it are all added.
"""

from __future__ import annotations

from typing import Final

ROW_KIND: Final = "__tidegate_kind"
"""The column. The numbers are those of Flink's `RowKind`."""
INSERT: Final = 0
UPDATE_BEFORE: Final = 1
"""Taken back by an update: the row as it was. `UPDATE_AFTER` of the same record is the row as it is."""
UPDATE_AFTER: Final = 2
DELETE: Final = 3
"""Taken back for good."""
RETRACTING: Final = frozenset({UPDATE_BEFORE, DELETE})

BEFORE: Final = "__tidegate_before."
"""Begins the names of the columns with the row before an update, from the decoder to the end of the source, where each
update becomes two rows."""
