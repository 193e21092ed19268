"""How long a stop may take. On a slow link a call takes seconds, so the limits depend on measured times. Pure."""

from __future__ import annotations

from typing import Final

CLOSE_S: Final = 5.0
CLOSE_S_MAX: Final = 20.0
RETURN_MARGIN_S: Final = 1.0
"""Time for what a slot closes besides its sinks."""
CALLS: Final = 2
"""A sink being closed may have begun one transaction and be waiting for another to be prepared."""


def derive_close_limit_s(measured_s: float) -> float:
    """Returns how long the threads of a sink have to end.

    `measured_s` is how long the sink took to open, or to prepare, its last transaction.
    """
    return min(CLOSE_S_MAX, max(CLOSE_S, CALLS * measured_s))


def derive_return_limit_s(measured_s: float) -> float:
    """Returns how long all slots have to return.

    `measured_s` is the longest time that a sink took to prepare a checkpoint.
    """
    return derive_close_limit_s(measured_s) + RETURN_MARGIN_S
