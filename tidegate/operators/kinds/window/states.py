"""The names of the states of windows: checkpoints are found by them."""

from __future__ import annotations

from typing import Final

from tidegate.ids import StateName

SLICES: Final = StateName("slices")
"""Partial results by the local end of their slice and key."""
EXTRA: Final = StateName("extra")
"""By due time and key: of rows that count for this result and not for all of their slice."""
GATHERED: Final = StateName("gathered")
"""By the local end of a window and key: what its last early result was made of."""
TIMERS: Final = StateName("timers")
"""By due time and key: results to come, where a result is not just an entry of `slices`; and the ends of sessions."""
SESSIONS: Final = StateName("sessions")
"""The open sessions of a key."""
KEPT_SESSIONS: Final = StateName("kept_sessions")
"""The same where late rows may correct them, and those that are kept for that."""
EARLY_SESSIONS: Final = StateName("early_sessions")
"""The same where sessions give early results, too."""
EARLY: Final = StateName("early")
"""By due time and key: early results of sessions to come."""
AHEAD: Final = StateName("ahead")
"""By due time and key: sessions of rows that are younger than the next early result."""
PENDING_LATE_ROWS: Final = StateName("pending_late")
"""Rows of sessions below the watermark of their partition, by that watermark and key: their partial results."""
LATE_ROWS: Final = StateName("late_rows")
"""By the same: the rows themselves, for the output `late` if it turns out that they are late."""
EMITTED: Final = StateName("emitted")
"""By end and key: sessions whose results were given as they are."""
