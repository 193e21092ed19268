"""A slot's initial knowledge: the address of its daemon, and its credentials there."""

from __future__ import annotations

import msgspec

from tidegate.ids import Attempt


class SlotBootstrap(msgspec.Struct, frozen=True):
    """Everything that travels in the Spark closure; the rest comes over the control connection."""

    host: str
    port: int
    attempt: Attempt
    token: str
    connect_timeout_s: float = 30.0
    key: str = ""
    """See `process/channel_key.py`; empty if connections are not encrypted."""
