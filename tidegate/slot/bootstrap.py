"""What a slot knows when it begins: where its daemon is, and what it shows there."""

from __future__ import annotations

import msgspec

from tidegate.ids import Attempt


class SlotBootstrap(msgspec.Struct, frozen=True):
    """All that travels in the Spark closure; everything else comes over the control connection."""

    host: str
    port: int
    attempt: Attempt
    token: str
    connect_timeout_s: float = 30.0
    key: str = ""
    """See `process/channel_key.py`; empty: connections are not encrypted."""
