"""The names of the states of windows. They identify state in checkpoints, so they must not change."""

from __future__ import annotations

from typing import Final

from tidegate.ids import StateName

SLICES: Final = StateName("slices")
"""Partial results by local end of the slice and by key."""
EXTRA: Final = StateName("extra")
"""Rows that count for one result but not for all results of their slice, by due time and key."""
GATHERED: Final = StateName("gathered")
"""What the last early result of a window was made of, by local end of the window and by key."""
TIMERS: Final = StateName("timers")
"""Pending results that are not just an entry of `slices`, by due time and key. Also the ends of sessions."""
SESSIONS: Final = StateName("sessions")
"""The open sessions of a key."""
KEPT_SESSIONS: Final = StateName("kept_sessions")
"""The open sessions of a key and those kept for correction by late rows."""
EARLY_SESSIONS: Final = StateName("early_sessions")
"""The sessions of a key if they also have early results."""
EARLY: Final = StateName("early")
"""Pending early results of sessions, by due time and key."""
AHEAD: Final = StateName("ahead")
"""Sessions of rows that are younger than the next early result, by due time and key."""
PENDING_LATE_ROWS: Final = StateName("pending_late")
"""Partial results of session rows below the watermark of their partition, by that watermark and key."""
LATE_ROWS: Final = StateName("late_rows")
"""The same rows as a whole, for the output `late` if they turn out to be late."""
EMITTED: Final = StateName("emitted")
"""Sessions whose current result was emitted, by end and key."""
