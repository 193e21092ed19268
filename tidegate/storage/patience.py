"""Opens files when the process or the machine has run out of descriptors: waits, since nothing has happened yet.

Others release descriptors within moments (a flood of connections, another process's burst). If a journal append failed
for this reason, the attempt would end.
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
    """Returns the result of `opening`, which must have had no effect when it fails. Raises OSError."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return opening()
        except OSError as failure:
            if failure.errno not in NONE_LEFT or time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_S)
