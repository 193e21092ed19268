"""The signals that ask a daemon for its end."""

from __future__ import annotations

import signal


def ending_signals() -> list[signal.Signals]:
    """SIGHUP, of a terminal that is closed, not where whoever has started this process has it ignored (`nohup`)."""
    hangs_up = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]
