"""Values as librdkafka has them: an array of pointers into memory of others, and an array of lengths."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence


class NativeValues:
    """Copies of these values, each in a block of its own; None has no address and the length -1."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        count = len(values)
        self._blocks = [None if one is None else ctypes.create_string_buffer(one, len(one)) for one in values]
        places = [None if block is None else ctypes.addressof(block) for block in self._blocks]
        self._pointers = (ctypes.c_void_p * count)(*places)
        self._lengths = (ctypes.c_int32 * count)(*(-1 if one is None else len(one) for one in values))
        self.addresses = ctypes.addressof(self._pointers)
        self.lengths = ctypes.addressof(self._lengths)
        self.count = count

    def __len__(self) -> int:
        return self.count
