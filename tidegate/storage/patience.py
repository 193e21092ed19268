"""Opening files when the process, or the machine, has no descriptor left: wait for one, for nothing has happened yet.

Others give descriptors back within moments (a flood of connections, a neighbour's burst); a journal append that fails
for it would cost the attempt.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Final, TypeVar

WAIT_S: Final = 30.0
PAUSE_S: Final = 0.05
NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})

T = TypeVar("T")


def open_patiently(opening: Callable[[], T]) -> T:
    """What `opening` returns. It must have done nothing when it fails. Raises OSError."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return opening()
        except OSError as failure:
            if failure.errno not in NONE_LEFT or time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_S)
