"""A pipe that ends a selector's wait from any thread."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress


class WakePipe:
    """Register it with a selector. It is closed with its last reference, so that no thread writes into a closed one."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        weakref.finalize(self, _close, self._read, self._write)

    def fileno(self) -> int:
        """The end that becomes readable."""
        return self._read

    def wake(self) -> None:
        """Make it readable; a full pipe is readable already."""
        with suppress(BlockingIOError):
            os.write(self._write, b"!")

    def drain(self) -> None:
        """Make it unreadable, once it is readable."""
        os.read(self._read, 65536)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
