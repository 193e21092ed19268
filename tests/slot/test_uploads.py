"""Uploads in the background: durable before they are reported, deleted when nobody needs them any more."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

from polars.exceptions import PanicException

from tests.waiting import PATIENCE_S, wait_until
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, SubtaskId, VertexId
from tidegate.slot.uploads import Uploads
from tidegate.storage.base import StorageError
from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import STATE_PREFIX
from tidegate.task.loop import Uploaded, UploadJob
from tidegate.task.ports import Encode

SUBTASK = SubtaskId(VertexId("totals"), SlotIndex(1))


def job(checkpoint: int, encode: Encode = lambda: [b"state"]) -> UploadJob:
    return UploadJob(SUBTASK, CheckpointId(checkpoint), OperatorName("totals"), encode)


def take(uploads: Uploads, count: int) -> list[Uploaded]:
    found: list[Uploaded] = []

    def look() -> bool:
        found.extend(uploads.take_results())
        return len(found) >= count

    wait_until(look, f"{count} results")
    return found


def test_F24_a_result_names_an_object_that_is_durable(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    woken = threading.Event()
    uploads = Uploads(storage, woken.set)
    uploads.submit(job(3))
    (result,) = take(uploads, 1)
    assert woken.wait(PATIENCE_S)  # a result is there before it wakes
    (handle,) = result.handles
    assert unseal(handle.path, storage.get(handle.path)) == b"state"
    assert handle.size_bytes == len(storage.get(handle.path))
    uploads.close(5)


def test_F25_a_capture_that_fails_is_a_result_and_the_thread_goes_on(tmp_path: Path) -> None:
    uploads = Uploads(LocalStorage(str(tmp_path)), lambda: None)

    def broken() -> list[bytes]:
        raise StorageError("no room")

    def panicking() -> list[bytes]:
        raise PanicException("a bug of Polars")

    uploads.submit(job(3, broken))
    uploads.submit(job(4, lambda: [bytes(1 // 0)]))
    uploads.submit(job(5, panicking))
    uploads.submit(job(6))
    results = take(uploads, 4)
    assert [len(result.handles) for result in results] == [0, 0, 0, 1]
    assert results[0].error == "no room"
    assert "ZeroDivisionError" in results[1].error
    assert "PanicException: a bug of Polars" in results[2].error
    uploads.close(5)


def test_F25_the_asynchronous_part_runs_on_a_thread_of_its_own(tmp_path: Path) -> None:
    seen: list[str] = []

    def encode() -> list[bytes]:
        seen.append(threading.current_thread().name)
        return [b"state"]

    uploads = Uploads(LocalStorage(str(tmp_path)), lambda: None)
    uploads.submit(job(3, encode))
    take(uploads, 1)
    uploads.close(5)
    assert seen == ["uploads"]


def test_what_a_job_encodes_is_given_up_when_it_is_done(tmp_path: Path) -> None:
    """A moment that is held keeps entries from being folded, and files of RocksDB from being removed."""

    class Moment:
        def encode(self) -> list[bytes]:
            return [b"state"]

    uploads, moment = Uploads(LocalStorage(str(tmp_path)), lambda: None), Moment()
    held = weakref.ref(moment)
    uploads.submit(job(3, moment.encode))
    del moment
    take(uploads, 1)
    wait_until(lambda: held() is None, "the end of the moment")
    uploads.close(5)


def test_F27_an_abandoned_upload_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    uploads = Uploads(storage, lambda: None)
    started, go_on = threading.Event(), threading.Event()

    def slow() -> list[bytes]:
        started.set()
        assert go_on.wait(PATIENCE_S)
        return [b"state"]

    uploads.submit(job(3, slow))
    uploads.submit(job(3, lambda: [b"never asked for"]))
    assert started.wait(PATIENCE_S)
    uploads.abandon(CheckpointId(3))
    go_on.set()
    uploads.submit(job(4))
    assert [result.checkpoint for result in take(uploads, 1)] == [4]
    wait_until(lambda: [name for name in storage.list(STATE_PREFIX) if "000003-" in name] == [], "state 3 is deleted")
    uploads.close(5)
