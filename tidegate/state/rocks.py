"""Keyed state in RocksDB on local disk, for state that is larger than memory. Only imported where it runs.

A key is its key group (2 bytes, big-endian) and the msgpack array of its columns, a value the msgpack array of its
fields: put together they are an entry of the file format, so a snapshot copies bytes, and its files are those of every
other backend. Nothing on the local disk is trusted at a restart: the write-ahead log is off.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, Snapshot, WriteBatch, WriteOptions

from tidegate.state.base import GroupsOf, Key, Value
from tidegate.state.errors import LocalStateFailed
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File
from tidegate.state.local_directory import LocalDirectory
from tidegate.state.snapshot import EncodedGroup, StateShape, assemble_snapshot, read_entries, tuple_type

FILE_BYTES: Final = 16 << 20
"""A file of a snapshot ends behind the entry with which it has so many bytes: one file is in memory at a time."""
BATCH: Final = 10_000
"""Keys that are written or looked up at a time."""
_GROUP: Final = struct.Struct(">H")


class RocksLimits(msgspec.Struct, frozen=True):
    """Memory of one state, roughly: the cache and two write buffers."""

    cache_bytes: int = 64 << 20
    write_buffer_bytes: int = 32 << 20


class RocksState(IncrementalState[File]):
    """See KeyedState."""

    def __init__(
        self,
        operator: str,
        name: str,
        shape: StateShape,
        groups_of: GroupsOf,
        retained: int = 1,
        *,
        parent: Path | None = None,
        limits: RocksLimits | None = None,
    ) -> None:
        """`retained`: see Increments. `parent`: where the directory is made, the system's temporary one by default."""
        super().__init__(operator, name, shape, groups_of, retained)
        self._count = 0
        self._seen: dict[Key, tuple[bytes, bool]] = {}
        """Of the keys that were looked up last: how they are stored, and whether they are there."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(tuple_type(shape.values)).decode
        base = Path(tempfile.gettempdir()) if parent is None else parent
        try:
            self._directory = LocalDirectory(base)
            self._db = Rdict(str(self._directory.path / "db"), _options(limits or RocksLimits()))
        except Exception as error:
            raise self._failure(base, error) from error  # the library has no class of errors of its own
        writes = WriteOptions()
        writes.disable_wal = True  # type: ignore[method-assign,assignment]  # an attribute, called a method by the stubs
        self._db.set_write_options(writes)

    def __len__(self) -> int:
        """See KeyedState."""
        return self._count

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """See KeyedState."""
        stored = self._stored_keys(keys)
        try:
            found: list[bytes | None] = self._db.get(cast("Any", stored)) or []
        except Exception as error:
            raise self._failure(self._directory.path, error) from error
        self._seen = {key: (place, value is not None) for key, place, value in zip(keys, stored, found, strict=True)}
        return [None if value is None else self._decode(value) for value in found]

    def restore(self, files: Iterable[bytes], key_groups: range) -> None:
        """See KeyedState."""
        for data in files:
            for entries in read_entries(data, key_groups, self._operator, self._name, self._shape):
                rest = iter(entries)
                while part := dict(islice(rest, BATCH)):
                    self._put(self._keys(part), part.values())

    def close(self) -> None:
        """See KeyedState."""
        self._db.close()
        self._directory.close()

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> None:
        if any(key not in self._seen for key in keys):
            self.get_many(keys)
        batch = WriteBatch(raw_mode=True)
        new: set[Key] = set()
        for key, value in zip(keys, values, strict=True):
            place, there = self._seen[key]
            batch.put(place, self._encode(value))
            if not there:
                new.add(key)
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._failure(self._directory.path, error) from error
        self._count += len(new)
        self._seen = {}

    def _freeze_all(self) -> Encode:
        # An iterator sees the moment of its making. (Those of the library's snapshots see later writes, too.)
        return partial(self._files, self._db.items(), self._count)

    def _freeze(self, keys: Collection[Key]) -> Encode:
        return partial(self._files_of, self._db.snapshot(), keys)

    def _stored_keys(self, keys: Iterable[Key]) -> list[bytes]:
        rows = self._rows(keys)
        return [_GROUP.pack(group) + self._encode(row) for group, row in zip(self._groups_of(rows), rows, strict=True)]

    def _files_of(self, moment: Snapshot, keys: Iterable[Key]) -> Iterator[bytes]:
        places = sorted(self._stored_keys(keys))
        return self._files(((place, moment[place]) for place in places), len(places))

    def _files(self, items: Iterable[tuple[Any, bytes]], count: int) -> Iterator[bytes]:
        """Files of these, which come in the order of their keys; at least one, so that an empty state has one, too.

        Raises LocalStateFailed when there are not `count`: an iterator that meets damage just ends.
        """
        size, written, left = 0, False, count
        parts: list[EncodedGroup] = []
        for prefix, entries in groupby(items, key=lambda item: item[0][: _GROUP.size]):
            (group,) = _GROUP.unpack(prefix)
            chunk: list[bytes] = []
            for place, value in entries:
                chunk.append(b"\x92" + place[_GROUP.size :] + value)
                size += len(chunk[-1])
                left -= 1
                if size >= FILE_BYTES:
                    yield self._file([*parts, _encoded_group(group, chunk)])
                    size, parts, chunk, written = 0, [], [], True
            if chunk:
                parts.append(_encoded_group(group, chunk))
        if left:
            raise self._failure(self._directory.path, f"{count - left} keys were read where {count} were written")
        if parts or not written:
            yield self._file(parts)

    def _failure(self, directory: Path, error: object) -> LocalStateFailed:
        return LocalStateFailed(
            f"state of {self._operator} in {directory}: {error}; look whether the disk is full or broken, or let "
            "`TMPDIR` name another directory on the executors",
            operator=self._operator,
            directory=str(directory),
        )

    def _file(self, parts: Sequence[EncodedGroup]) -> bytes:
        return assemble_snapshot(self._operator, self._name, self._shape, parts)


def _encoded_group(group: int, entries: Sequence[bytes]) -> EncodedGroup:
    return EncodedGroup(group, len(entries), struct.pack(">BI", 0xDD, len(entries)) + b"".join(entries))


def _options(limits: RocksLimits) -> Options:
    """Bounded memory: index and filter blocks are in the cache, too."""
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(limits.cache_bytes))
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_size(limits.write_buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    return options
