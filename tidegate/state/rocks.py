"""Keyed state in RocksDB on local disk, for state that exceeds memory. Imported only where it is used.

A stored key consists of its key group (2 bytes, big-endian) and its columns in the encoding of `order.py`, so a scan is
one sequential walk over the disk. A stored value is the msgpack array of its fields, as in the file format. Snapshots
are files of that format, as with every other backend. A restart never uses the local disk, so the write-ahead log is
off.
"""

from __future__ import annotations

import logging
import struct
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    IngestExternalFileOptions,
    Options,
    Rdict,
    RdictIter,
    ReadOptions,
    Snapshot,
    SstFileWriter,
    WriteBatch,
    WriteOptions,
)
from typing_extensions import override

from tidegate.state.base import GroupsOf, Key, Share
from tidegate.state.declaration import StateDeclaration, StateShape
from tidegate.state.errors import LocalStateFailed
from tidegate.state.grouping import in_parts
from tidegate.state.incremental import Encode, IncrementalState
from tidegate.state.increments import File, KeySet
from tidegate.state.local_directory import LocalDirectory
from tidegate.state.order import Row, after_prefix
from tidegate.state.snapshot import (
    EncodedGroup,
    Value,
    assemble_snapshot,
    join_entries,
    read_encoded,
    value_type,
)

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 16 << 20
"""A file of a snapshot ends after the entry with which it reaches this size: one file is in memory at a time."""
BATCH: Final = 10_000
"""The number of keys that are written or looked up at a time."""
RANGES_MAX: Final = 64
"""The maximum number of key group ranges that a full snapshot reads, each with its own iterator. An iterator that skips
deleted keys blocks all other threads until it finds a key, so it must not have to skip those of all key groups."""
_GONE: Final = b"\xc0"
_GROUP: Final = struct.Struct(">H")


class RocksLimits(msgspec.Struct, frozen=True):
    """The approximate memory of one state: the cache and two write buffers."""

    cache_bytes: int = 64 << 20
    write_buffer_bytes: int = 32 << 20


class RocksState(IncrementalState[File]):
    """A KeyedState in RocksDB."""

    def __init__(
        self,
        operator: str,
        declaration: StateDeclaration,
        groups_of: GroupsOf,
        retained: int = 1,
        *,
        parent: Path | None = None,
        limits: RocksLimits | None = None,
    ) -> None:
        """`retained`: see Increments. `parent`: where the directory is created, by default below the system's temporary
        directory.
        """
        super().__init__(operator, declaration, groups_of, retained)
        self._count = 0
        self._seen: dict[Key, tuple[bytes, bool]] = {}
        """For the keys that were looked up last: their stored form, and whether they exist."""
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(value_type(declaration.shape)).decode
        base = Path(tempfile.gettempdir()) if parent is None else parent
        self._options = _options(limits or RocksLimits())
        with ExitStack() as made:
            try:
                self._directory = LocalDirectory(base)
                made.callback(self._directory.close)
                self._db = Rdict(str(self._directory.path / "db"), self._options)
            except Exception as error:
                raise self._failure(base, error) from error  # the library has no exception class of its own
            made.pop_all()
        writes = WriteOptions()
        writes.disable_wal = True  # type: ignore[method-assign,assignment]  # an attribute, a method in the stubs
        self._db.set_write_options(writes)

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        stored = self._stored_keys(keys)
        found = self._get(stored)
        self._seen = {key: (place, value is not None) for key, place, value in zip(keys, stored, found, strict=True)}
        return [None if value is None else self._decode(value) for value in found]

    @override
    def keys(self) -> Iterator[Key]:
        return (self._key(cast("bytes", place)) for place in self._db.keys())  # noqa: SIM118  # not a dict

    def restore(self, files: Iterable[bytes], share: Share) -> None:
        """Adds the entries of each file that belong to this share."""
        ends: dict[int, bytes] = {}  # the last key of each key group that has keys
        for data in files:
            added = _Added(self._db, self._options, self._directory.path)
            for group, keys, found in read_encoded(data, share.key_groups, self._operator, self.declaration):
                if not keys:
                    continue
                places = self._order.encode(keys, _GROUP.pack(group))
                ordered = sorted(places)
                values = _in_order(ordered, places, found)
                if _GONE in found or ordered[0] <= ends.get(group, b""):  # an increment
                    self._overwrite(ordered, values)
                else:
                    self._guard(partial(added.put, ordered, values))
                    self._count += len(keys)
                ends[group] = max(ends.get(group, b""), ordered[-1])
            self._guard(added.finish)

    def close(self) -> None:
        """Closes the database and removes its directory."""
        try:
            self._db.close()
        except Exception as error:  # noqa: BLE001  # closing flushes memory, which is never read again
            logger.info("state %s of %s was closed with an error: %s", self.declaration.name, self._operator, error)
        self._directory.close()

    def _overwrite(self, places: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Applies entries of a later file whose keys may exist, each key once, a batch at a time."""
        for part in in_parts(zip(places, values, strict=True), BATCH):
            found = self._get([place for place, _ in part])
            batch = WriteBatch(raw_mode=True)
            for (place, value), before in zip(part, found, strict=True):
                if value != _GONE:
                    batch.put(place, value)
                    self._count += before is None
                elif before is not None:
                    batch.delete(place)
                    self._count -= 1
            self._write(batch)

    def _get(self, places: list[bytes]) -> list[bytes | None]:
        """Returns the stored values, or None for keys that do not exist."""
        try:
            return self._db.get(cast("Any", places)) or []
        except Exception as error:
            raise self._failure(self._directory.path, error) from error

    def _put(self, keys: Collection[Key], values: Iterable[Value]) -> Collection[Key]:
        if any(key not in self._seen for key in keys):
            self.get_many(keys)
        batch = WriteBatch(raw_mode=True)
        new: set[Key] = set()
        for key, value in zip(keys, map(self._encode, values), strict=True):
            place, there = self._seen[key]
            batch.put(place, value)
            if not there:
                new.add(key)
        self._write(batch)
        self._count += len(new)
        self._seen = {}
        return keys

    def _delete(self, keys: Collection[Key]) -> Collection[Key]:
        if any(key not in self._seen for key in keys):
            self.get_many(keys)
        gone = [key for key in dict.fromkeys(keys) if self._seen[key][1]]
        if gone:
            batch = WriteBatch(raw_mode=True)
            for key in gone:
                batch.delete(self._seen[key][0])
            self._write(batch)
            self._count -= len(gone)
        self._seen = {}
        return gone

    def _delete_scanned(self, keys: Mapping[int, Sequence[Key]]) -> Iterable[Sequence[Key]]:
        batch = WriteBatch(raw_mode=True)
        for group, part in keys.items():
            for place in self._order.encode(self._rows(part), _GROUP.pack(group)):
                batch.delete(place)
            self._count -= len(part)
        self._write(batch)
        self._seen = {}
        return keys.values()

    def _write(self, batch: WriteBatch) -> None:
        self._guard(partial(self._db.write, batch))

    def _guard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            raise self._failure(self._directory.path, error) from error

    def _scan(
        self, group: int, prefix: Row, start: Row, limit: int | None, *, backwards: bool
    ) -> Iterator[tuple[Key, Value]]:
        walk, low = self._seek(group, prefix, start, backwards=backwards)
        places = self._walk(walk, low, limit, backwards=backwards)
        return ((self._key(place), self._decode(cast("bytes", walk.value()))) for place in places)

    @override
    def scan_keys(self, group: int, start: Row, limit: int) -> list[Key]:
        walk, low = self._seek(group, (), start, backwards=False)
        return [self._key(place) for place in self._walk(walk, low, limit, backwards=False)]

    def _seek(self, group: int, prefix: Row, start: Row, *, backwards: bool) -> tuple[RdictIter, bytes]:
        """Returns where a scan begins, and what its keys begin with."""
        low = _GROUP.pack(group) + self._order.encode_prefix(prefix)
        first = low + self._order.encode_prefix(start)
        try:
            walk = self._db.iter()  # it sees the state as of now
            if backwards:
                walk.seek_for_prev(cast("Any", after_prefix(low)))
            else:
                walk.seek(cast("Any", first))
        except Exception as error:
            raise self._failure(self._directory.path, error) from error
        return walk, low

    def _walk(self, walk: RdictIter, low: bytes, limit: int | None, *, backwards: bool) -> Iterator[bytes]:
        """Yields keys from here on while they begin with `low`; the walk is at the value of each. Raises
        LocalStateFailed if data is damaged.
        """
        step = walk.prev if backwards else walk.next
        if backwards and walk.valid() and not cast("bytes", walk.key()).startswith(low):
            step()  # the walk is at the first key after them
        while walk.valid() and (limit is None or limit > 0):
            place = cast("bytes", walk.key())
            if not place.startswith(low):
                break
            yield place
            limit = None if limit is None else limit - 1
            step()
        try:
            walk.status()
        except Exception as error:
            raise self._failure(self._directory.path, error) from error

    def _freeze_all(self) -> Encode:
        # An iterator sees the state as of its creation, wherever it seeks later, and skips deleted keys only then.
        # (Iterators of the library's snapshots also see later writes.)
        walks = deque(_Walk(self._db, low, high) for low, high in _derive_ranges(self.declaration.shape))
        return partial(self._files, _walk_all(walks), self._count)

    def _freeze(self, keys: KeySet) -> Encode:
        return partial(self._files_of, self._db.snapshot(), keys)

    def _stored_keys(self, keys: Iterable[Key]) -> list[bytes]:
        rows = self._rows(keys)
        groups = map(_GROUP.pack, self._groups(rows))
        return [group + place for group, place in zip(groups, self._order.encode(rows), strict=True)]

    def _key(self, place: bytes) -> Key:
        row = self._order.decode(place[_GROUP.size :])
        return row[0] if self._single else row

    def _files_of(self, moment: Snapshot, keys: KeySet) -> Iterator[bytes]:
        stored: defaultdict[bytes, list[bytes]] = defaultdict(list)
        some = keys.joined()
        for part in in_parts(some, BATCH):
            for place in self._stored_keys(part):
                stored[place[: _GROUP.size]].append(place)
        groups = (stored.pop(group) for group in sorted(stored))
        items = ((place, _value_at(moment, place)) for group in groups for place in sorted(group))
        return self._files(items, len(some))

    def _files(self, items: Iterable[tuple[bytes, bytes]], count: int) -> Iterator[bytes]:
        """Yields files of these items, which are in key order; at least one, so that an empty state also has a file.

        Raises LocalStateFailed if the number of items is not `count`: an iterator that meets damage simply ends.
        """
        size, written, left = 0, False, count
        parts: list[EncodedGroup] = []
        encode, row_of = self._encode, self._order.decode
        for prefix, entries in groupby(items, key=lambda item: item[0][: _GROUP.size]):
            (group,) = _GROUP.unpack(prefix)
            chunk: list[bytes] = []
            for place, value in entries:
                chunk.append(b"\x92" + encode(row_of(place[_GROUP.size :])) + value)
                size += len(chunk[-1])
                left -= 1
                if size >= FILE_BYTES:
                    yield self._file([*parts, join_entries(group, len(chunk), chunk)])
                    size, parts, chunk, written = 0, [], [], True
            if chunk:
                parts.append(join_entries(group, len(chunk), chunk))
        if left:
            raise self._failure(self._directory.path, f"{count - left} keys were read where {count} were written")
        if parts or not written:
            yield self._file(parts)

    def _failure(self, directory: Path, error: object) -> LocalStateFailed:
        name = self.declaration.name
        return LocalStateFailed(
            f"state {name} of {self._operator} in {directory}: {error}; check whether the disk is full or damaged, or "
            "let `TMPDIR` name another directory on the executors",
            operator=self._operator,
            state=name,
            directory=str(directory),
        )

    def _file(self, parts: Sequence[EncodedGroup]) -> bytes:
        return assemble_snapshot(self._operator, self.declaration, parts)


class _Added:
    """Writer of a file's entries whose keys do not exist yet, one key group at a time. If there are many, it writes a
    file that RocksDB ingests as it is: nothing is looked up, written twice or compacted.

    Each key group is written as it arrives: the key groups of a whole file would be 70 MB of objects and exceed all
    caches.
    """

    def __init__(self, db: Rdict, options: Options, directory: Path) -> None:
        self._db = db
        self._options = options
        self._path = str(directory / "restored.sst")
        self._writer: SstFileWriter | None = None
        self._few: list[tuple[bytes, bytes]] = []
        """Entries that are still too few to justify a file."""
        self._last = b""

    def put(self, places: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Adds entries in key order."""
        if places[0] <= self._last:  # key groups are in another order than ours, and RocksDB ingests only sorted files
            self.finish()
        self._last = places[-1]
        entries: Iterable[tuple[bytes, bytes]] = zip(places, values, strict=True)
        if self._writer is None:
            self._few += entries
            if len(self._few) < BATCH:
                return
            self._writer = SstFileWriter(self._options)
            self._writer.open(self._path)
            entries, self._few = self._few, []
        writer = self._writer
        for place, value in entries:
            writer[place] = value

    def finish(self) -> None:
        """Writes the added entries to the database."""
        if self._writer is not None:
            self._writer.finish()
            self._writer = None
            moved = IngestExternalFileOptions()
            moved.set_move_files(True)
            self._db.ingest_external_file([self._path], moved)
        elif self._few:
            batch = WriteBatch(raw_mode=True)
            for place, value in self._few:
                batch.put(place, value)
            self._db.write(batch)
            self._few = []


def _in_order(ordered: Sequence[bytes], places: Sequence[bytes], values: Sequence[bytes]) -> Sequence[bytes]:
    """Returns the values in the order of their keys. A backend without an order writes them in another one."""
    if places == ordered:
        return values
    found = dict(zip(places, values, strict=True))
    return [found[place] for place in ordered]


def _value_at(moment: Snapshot, place: bytes) -> bytes:
    """Returns the value of a key in the snapshot, or the nil of a tombstone if the key does not exist."""
    try:
        return cast("bytes", moment[cast("Any", place)])
    except Exception as error:  # the library has no exception class of its own, and no other lookup in a snapshot
        if str(error) != "key not found":
            raise
        return _GONE


def _derive_ranges(shape: StateShape) -> list[tuple[int, int]]:
    """Splits the key groups into ranges, each from its first group to before the next range."""
    step = -(-shape.max_parallelism // RANGES_MAX)
    return [(low, min(low + step, shape.max_parallelism)) for low in range(0, shape.max_parallelism, step)]


class _Walk:
    """A walk over a range of key groups that sees the state as of its creation."""

    def __init__(self, db: Rdict, low: int, high: int) -> None:
        self._low = _GROUP.pack(low)
        self._options = ReadOptions()  # the iterator reads the bound from it, but does not keep it alive
        self._options.set_iterate_upper_bound(_GROUP.pack(high))
        self._walk = db.iter(self._options)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields keys and values in order. If the walk meets damage, it simply ends."""
        walk = self._walk
        walk.seek(cast("Any", self._low))
        while walk.valid():
            yield cast("bytes", walk.key()), cast("bytes", walk.value())
            walk.next()


def _walk_all(walks: deque[_Walk]) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values walk by walk, and drops each walk at its end."""
    while walks:
        yield from walks.popleft().items()


def _options(limits: RocksLimits) -> Options:
    """Returns options that bound memory: the cache also holds indices and filters.

    These are in partitions of a few kilobytes. The whole filter of a file has megabytes, which exceeds a shard of the
    cache: from some million keys on, it would be read from the file again for every lookup.
    """
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(limits.cache_bytes))
    tables.set_cache_index_and_filter_blocks(True)
    tables.set_bloom_filter(10, False)
    tables.set_index_type(BlockBasedIndexType.two_level_index_search())
    tables.set_partition_filters(True)
    tables.set_pin_top_level_index_and_filter(True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(tables)
    options.set_write_buffer_size(limits.write_buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(1)
    return options
