"""The prefix of a message: the zero byte, the schema id, and the place of the message type in its file.

The place is a list of zig-zag varints, preceded by their number. For the first message, which is the most frequent
case, a single zero replaces the list.
"""

from __future__ import annotations

from typing import Final

from tidegate.formats.schema_ids import PREFIX_BYTES, prefix_of
from tidegate.formats.schemas import FormatOptions

FIRST: Final = (0,)
VARINT_BYTES_MAX: Final = 5
INDEXES_MAX: Final = 100


def prefix_with_place(options: FormatOptions, place: tuple[int, ...]) -> bytes:
    """Returns the prefix of messages of this type."""
    prefix = prefix_of(options)
    if not prefix:
        return b""
    numbers = (0,) if place == FIRST else (len(place), *place)
    return prefix + b"".join(_varint(number << 1) for number in numbers)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def split_place(value: bytes) -> tuple[int, tuple[int, ...]] | None:
    """Returns where the message begins after a prefix with an id, and the place of its type; None if it is invalid."""
    at = PREFIX_BYTES
    if value[at : at + 1] == b"\0":
        return at + 1, FIRST
    count, at = _read(value, at)
    if not 0 < count <= INDEXES_MAX:
        return None
    place = []
    for _ in range(count):
        index, at = _read(value, at)
        if index < 0:
            return None
        place.append(index)
    return at, tuple(place)


def _read(value: bytes, at: int) -> tuple[int, int]:
    """Reads a number and returns it with its end; -1 for a missing or negative number."""
    number = 0
    for shift, byte in enumerate(value[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return (-1 if number & 1 else number >> 1), at + shift + 1
    return -1, at
