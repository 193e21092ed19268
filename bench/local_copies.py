"""What copies of state files save at a restore from an object store (ADR 61).

    python bench/local_copies.py [KEYS] [MILLISECONDS] [MEGABYTES_PER_SECOND]

A state in memory with KEYS keys (200,000 by default) of 54 bytes is uploaded to the small object server of the tests,
and restored from it and from copies: all key groups, as after a failure, and a quarter of them, as at a higher
parallelism. The server holds each answer back for MILLISECONDS (30) and as long as its bytes take at
MEGABYTES_PER_SECOND (50). The page cache is warm, as it is after a failure. Wall time: a busy machine shows in it.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.state.driving import GROUPS, make_memory, put
from tests.storage.stores import opener_of
from tests.support.object_server import ObjectServer
from tidegate.coordinator.types import StateHandle
from tidegate.ids import CheckpointId, OperatorName, SlotIndex
from tidegate.journal.state_files import derive_head
from tidegate.slot.copies import NO_COPIES, LocalCopies, RestoredFiles
from tidegate.state.base import Share
from tidegate.storage.base import Storage
from tidegate.storage.checksum import seal
from tidegate.storage.objects.storage import RANGE_BYTES


def upload(storage: Storage, copies: LocalCopies, keys: int) -> list[StateHandle]:
    """One full snapshot, as a slot writes it."""
    state = make_memory()
    for start in range(0, keys, 100_000):
        put(state, {f"key-{number:010}{'x' * 40}": number for number in range(start, min(keys, start + 100_000))})
    encode = state.capture(CheckpointId(1)).encode
    assert encode is not None
    handles: list[StateHandle] = []
    put_s = keep_s = 0.0
    for number, body in enumerate(encode()):
        data = seal(body)
        path = f"state/000000000001-step-0.totals.{number}.state"
        started = time.monotonic()
        storage.put(path, data)
        stored = time.monotonic()
        copies.keep(path, data)
        put_s, keep_s = put_s + stored - started, keep_s + time.monotonic() - stored
        head, digest = derive_head(data)
        sha256 = hashlib.sha256(data).hexdigest()
        step, subtask = OperatorName("step"), SlotIndex(0)
        handles.append(StateHandle(step, subtask, path, len(data), sha256, head_bytes=head, head_sha256=digest))
    size = sum(handle.size_bytes for handle in handles)
    print(f"{keys:,} keys, {size:,} bytes in {len(handles)} files: uploads {put_s:.2f} s, copies {keep_s:.2f} s")
    return handles


def restore(files: RestoredFiles, handles: Sequence[StateHandle], key_groups: range) -> int:
    """How many keys there are."""
    state = make_memory()
    state.restore((part for handle in handles for part in files.read_parts(handle, key_groups)), Share(key_groups))
    return len(state)


def main(keys: int = 200_000, pause_ms: int = 30, megabytes_per_s: int = 50) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory() as folder, ObjectServer() as server:
        storage = opener_of(server.endpoint, Path(folder))(create=True)
        copies = LocalCopies(Path(folder), "bench", 1 << 40)
        handles = upload(storage, copies, keys)
        rate = megabytes_per_s * 1e6  # of a whole object the client takes the first range and breaks off
        server.seconds_of = lambda size_bytes: pause_ms / 1000 + min(size_bytes, RANGE_BYTES) / rate
        for groups in (range(GROUPS), range(GROUPS // 4)):
            for name, used in (("storage", NO_COPIES), ("copies", copies)):
                server.requests.clear()
                files = RestoredFiles(storage, used)
                started = time.monotonic()
                for handle in handles:
                    for _ in files.read_parts(handle, groups):
                        pass
                read_s = time.monotonic() - started
                requests = len(server.requests)
                found = restore(files, handles, groups)
                whole_s = time.monotonic() - started - read_s
                print(
                    f"{len(groups)} of {GROUPS} key groups from {name}: read and verified {read_s:.2f} s ({requests} "
                    f"requests), restored {whole_s:.2f} s, {found:,} keys"
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
