"""A pipe that ends a selector's wait from any thread."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress


class WakePipe:
    """A pipe to register with a selector. It closes with its last reference, so that no thread writes into a closed
    one.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        weakref.finalize(self, _close, self._read, self._write)

    def fileno(self) -> int:
        """Returns the end that becomes readable."""
        return self._read

    def wake(self) -> None:
        """Makes it readable; a full pipe already is."""
        with suppress(BlockingIOError):
            os.write(self._write, b"!")

    def drain(self) -> None:
        """Makes it unreadable. Call it only when it is readable."""
        os.read(self._read, 65536)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
