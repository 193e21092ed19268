"""The signals that stop a daemon."""

from __future__ import annotations

import signal


def ending_signals() -> list[signal.Signals]:
    """Lists the signals. SIGHUP, sent when a terminal closes, is left out if the parent has it ignored (`nohup`)."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]
