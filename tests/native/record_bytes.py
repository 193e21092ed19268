"""Records as a broker's answer has them (format 2, KIP-98), each in a block of its size, and messages of them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.native.librdkafka import Message

Header = tuple[bytes, bytes | None]
Address = ctypes.c_void_p
OTHER: Final[Header] = (b"asked", b"for")
"""What the client says where it is asked."""


class Written(msgspec.Struct, frozen=True):
    """Bytes of a record, and where its key and its value are in them."""

    data: bytes
    key: tuple[int, int] | None
    value: tuple[int, int] | None
    headers: int
    """Where they begin."""


def number(value: int) -> bytes:
    """With the sign in the lowest bit, seven bits a byte, the lowest first."""
    rest, found = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def sized(data: bytes | None) -> bytes:
    """After its length."""
    return number(-1) if data is None else number(len(data)) + data


def write_record(
    key: bytes | None, value: bytes | None, headers: Sequence[Header], at: int = 0, offset: int = 0, rest: bytes = b""
) -> Written:
    """`at` and `offset`: deltas. `rest`: after the headers, where there should be nothing."""
    body = b"\0" + number(at) + number(offset)
    key_at = len(body) + len(number(-1 if key is None else len(key)))
    body += sized(key)
    value_at = len(body) + len(number(-1 if value is None else len(value)))
    body += sized(value)
    headers_at = len(body)
    body += number(len(headers)) + b"".join(number(len(name)) + name + sized(one) for name, one in headers) + rest
    front = number(len(body))
    moved = len(front)
    return Written(
        front + body,
        None if key is None else (moved + key_at, len(key)),
        None if value is None else (moved + value_at, len(value)),
        moved + headers_at,
    )


class Messages:
    """Messages of such records, as the library takes them, and a client that is asked for what is not found."""

    def __init__(self, records: Sequence[Written]) -> None:
        self._blocks = [(ctypes.c_char * len(one.data)).from_buffer_copy(one.data) for one in records]
        self._messages = [self._message(*one) for one in zip(self._blocks, records, strict=True)]
        self._addresses = (Address * len(records))(*map(ctypes.addressof, self._messages))
        self.asked = 0

    @staticmethod
    def _message(block: Any, one: Written) -> Message:
        at = ctypes.addressof(block)
        value = (None, 0) if one.value is None else (at + one.value[0], one.value[1])
        key = (None, 0) if one.key is None else (at + one.key[0], one.key[1])
        return Message(0, None, 0, *value, *key, 0, None)

    def headers(self, library: ctypes.CDLL) -> list[list[Header]]:
        """Of each message. How often the client was asked is in `asked`."""
        count = len(self._messages)
        lists, counts = (Address * count)(), (ctypes.c_int64 * count)()
        get, size_of, header_at = self._client()
        library.tg_count_headers.restype = ctypes.c_int64
        given = (self._addresses, ctypes.c_int64(count), get, size_of, lists, counts)
        total = library.tg_count_headers(*given)
        names, values = (Address * total)(), (Address * total)()
        name_lengths, value_lengths = (ctypes.c_int32 * total)(), (ctypes.c_int32 * total)()
        library.tg_headers(
            self._addresses, lists, counts, ctypes.c_int64(count), header_at, names, name_lengths, values, value_lengths
        )
        flat = [
            (bytes_at(name, size) or b"", bytes_at(value, length))
            for name, size, value, length in zip(names, name_lengths, values, value_lengths, strict=True)
        ]
        assert sum(counts) == total
        return [[flat.pop(0) for _ in range(one)] for one in counts]

    def record_bytes(self, library: ctypes.CDLL) -> int:
        """Of all keys, values and headers."""
        library.tg_record_bytes.restype = ctypes.c_int64
        found: int = library.tg_record_bytes(self._addresses, ctypes.c_int64(len(self._messages)), *self._client())
        return found

    def _client(self) -> tuple[Any, Any, Any]:
        """Functions that find one header, `OTHER`, in each message."""

        def find(_: int, found: Any) -> int:
            self.asked += 1
            found[0] = 1  # any list
            return 0

        def read(_: int, index: int, name: Any, value: Any, size: Any) -> int:
            name[0], value[0], size[0] = self._name, self._value, len(OTHER[1] or b"")
            return 0

        self._name = ctypes.cast(ctypes.c_char_p(OTHER[0]), Address).value
        self._value = ctypes.cast(ctypes.c_char_p(OTHER[1]), Address).value
        pointer = ctypes.POINTER(Address)
        get = ctypes.CFUNCTYPE(ctypes.c_int32, Address, pointer)(find)
        size_of = ctypes.CFUNCTYPE(ctypes.c_size_t, Address)(lambda _: 1)
        header_at = ctypes.CFUNCTYPE(
            ctypes.c_int32, Address, ctypes.c_size_t, pointer, pointer, ctypes.POINTER(ctypes.c_size_t)
        )(read)
        return get, size_of, header_at


def bytes_at(address: int | None, length: int) -> bytes | None:
    """None where the length is -1."""
    return None if length < 0 else ctypes.string_at(address or 0, length) if length else b""


def draw_record(rnd: random.Random) -> tuple[bytes | None, bytes | None, list[Header]]:
    """A key, a value and headers of all sizes that change how they are written."""
    return draw_bytes(rnd), draw_bytes(rnd), [(draw_name(rnd), draw_bytes(rnd)) for _ in range(rnd.choice((0, 1, 3)))]


def draw_name(rnd: random.Random) -> bytes:
    """Of a header."""
    return bytes(rnd.choices(range(1, 256), k=rnd.choice((0, 1, 7, 63, 64))))


def draw_bytes(rnd: random.Random) -> bytes | None:
    """Or NULL."""
    size = rnd.choice((-1, 0, 1, 7, 63, 64, 200, 8191, 8192))
    return None if size < 0 else rnd.randbytes(size)
