"""A process that answers as it is told, for test_child.py."""

from __future__ import annotations

import os
import signal
import sys

from tidegate.daemon.reading.answering import answer_request
from tidegate.errors import PipelineStopped


class Lost(PipelineStopped):
    """What was asked for does not exist."""

    code = "lost"


def read(order: str) -> object:
    """Does what the order is."""
    match order:
        case "refuse":
            raise Lost("there is no such thing")
        case "crash":
            print("hurt", file=sys.stderr)
            raise ValueError("a bug")
        case "wait":
            signal.pause()
        case "much":
            return "x" * 100_000
        case "talk":
            print("y" * 200_000, file=sys.stderr)
    return {"order": order, "pid": os.getpid(), "parent": os.getppid()}


if __name__ == "__main__":
    answer_request(str, read)
