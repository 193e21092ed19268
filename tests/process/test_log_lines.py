"""Lines of a log that is not read, or not taken: nobody who logs waits, and what is lost is counted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import io
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from tests.waiting import PATIENCE_S, wait_until
from tidegate.process.log_lines import LineHandler, StreamLines, discard
from tidegate.process.logs import configure_logging

logger = logging.getLogger("tidegate.test")

FULL = OSError(errno.ENOSPC, "No space left on device")


class Pipe:
    """As small as a pipe can be. `stream` writes into it, `read` gives what is in it until its end."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        self.stream = os.fdopen(writer, "w", encoding="utf-8")

    def read(self) -> list[str]:
        with os.fdopen(self.reader, encoding="utf-8") as reader:
            return reader.read().splitlines()


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def lost(line: str) -> int:
    """How many lines this one says are missing before it."""
    return int(line.partition(": ")[2].split()[0]) if "log lines were dropped here" in line else 0


def test_a_log_that_is_not_read_holds_nobody_up(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's loop waited in a write: slots missed its pings and ended, and SIGTERM had no effect."""
    monkeypatch.setattr("tidegate.process.log_lines.LINES_MAX", 100)
    setup = configure_logging("shop", style="text", stream=pipe.stream)

    async def log() -> None:
        for number in range(1000):
            logger.info("line %d", number)

    logs = threading.Thread(target=asyncio.run, args=(log(),), daemon=True)
    logs.start()
    logs.join(PATIENCE_S)
    assert not logs.is_alive()
    found: list[str] = []
    reads = threading.Thread(target=lambda: found.extend(pipe.read()))
    reads.start()
    setup.close()
    pipe.stream.close()
    reads.join(PATIENCE_S)
    expected = 0
    for line in found:
        missing = lost(line)
        assert missing or line.endswith(f"line {expected}"), (
            "in their order, none twice, and what is missing is counted"
        )
        expected += missing or 1
    assert expected == 1000
    assert any(map(lost, found))


def test_lines_that_follow_dropped_ones_say_how_many_are_missing(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.process.log_lines.CHARACTERS_MAX", 10_000)
    setup = configure_logging("shop", style="text", stream=pipe.stream)
    for number in range(50):
        logger.info("%s %d", "x" * 1000, number)
    found: list[str] = []
    reads = threading.Thread(target=lambda: found.extend(pipe.read()))
    reads.start()
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, LineHandler)
    wait_until(lambda: not handler.is_stuck, "what waited is written")
    logger.info("next 50")
    setup.close()
    pipe.stream.close()
    reads.join(PATIENCE_S)
    assert lost(found[-2]) == 50 - (len(found) - 2) > 0
    assert found[-1].endswith("next 50")


def test_the_end_waits_for_a_bounded_time_and_nothing_fails_or_waits_after_it(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.process.log_lines.END_S", 0.01)
    setup = configure_logging("shop", style="text", stream=pipe.stream)
    for number in range(100):
        logger.info("%s %d", "x" * 1000, number)
    setup.close()
    pipe.stream.write("y" * 100_000)  # to nowhere
    pipe.stream.close()
    assert not any("y" in line for line in pipe.read())


def test_a_process_that_ends_at_once_does_not_wait_for_its_log(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the daemon does after a second signal, before `os._exit`: a lock that the write held would keep it."""
    monkeypatch.setattr("tidegate.process.log_lines.END_S", 0.01)
    setup = configure_logging("shop", style="text", stream=pipe.stream)
    logger.info("x" * 10_000)
    (handler,) = logging.getLogger().handlers
    ends = threading.Thread(target=logging.shutdown, args=([weakref.ref(handler)],), daemon=True)
    ends.start()
    ends.join(PATIENCE_S)
    assert not ends.is_alive()
    setup.close()
    pipe.stream.close()
    pipe.read()


class Taking:
    """Takes lines, or fails while there is an error."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.lines: list[str] = []

    def __call__(self, _level: int, text: str) -> None:
        if self.error is not None:
            raise self.error
        self.lines.append(text)


@pytest.fixture
def taking() -> Taking:
    return Taking()


@pytest.fixture
def handler(taking: Taking) -> Iterator[LineHandler]:
    handler = LineHandler(taking)
    yield handler
    handler.close()


def say(handler: logging.Handler, text: str) -> None:
    handler.handle(logging.makeLogRecord({"msg": text}))
    handler.flush()


def test_what_a_full_disk_did_not_take_is_counted(handler: LineHandler, taking: Taking) -> None:
    stuck = []
    for text, taking.error in (("first", None), ("second", FULL), ("third", FULL), ("fourth", None)):
        say(handler, text)
        stuck.append(handler.is_stuck)
    assert stuck == [False, True, True, False]
    counted = "2 log lines could not be written: [Errno 28] No space left on device"
    assert taking.lines == ["first", counted, "fourth"]


def test_a_line_after_a_torn_one_is_a_line_of_its_own(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.write, iter([3, None, 3, 1000])

    def write(descriptor: int, data: memoryview) -> int:
        size = next(sizes)
        if size is None:
            raise FULL
        return real(descriptor, data[:size])

    lines = StreamLines(pipe.stream)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        for text in ("torn line", "whole line"):
            with contextlib.suppress(OSError):
                lines(logging.INFO, text)
    lines(logging.INFO, "another")
    pipe.stream.close()
    assert pipe.read() == ["tor", "whole line", "another"]


def test_a_pipe_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    """A process that shares it may have made it so: what did not fit at once was lost."""
    os.set_blocking(pipe.stream.fileno(), False)
    texts = [f"{number} {'x' * 1000}" for number in range(100)]
    found: list[str] = []
    reads = threading.Thread(target=lambda: found.extend(pipe.read()))
    lines = StreamLines(pipe.stream)

    def write() -> None:
        for text in texts:
            lines(logging.INFO, text)

    writes = threading.Thread(target=write)
    writes.start()
    reads.start()
    writes.join(PATIENCE_S)
    pipe.stream.close()
    reads.join(PATIENCE_S)
    assert found == texts


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_character_without_bytes_is_written_as_the_stream_does(encoding: str) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding=encoding, errors="backslashreplace") as stream:
        StreamLines(stream)(logging.INFO, "caf\u00e9")
    with os.fdopen(reader, "rb") as read:
        assert read.read() == "caf\u00e9\n".encode(encoding, "backslashreplace")


def test_a_stream_that_is_discarded_may_have_no_descriptor() -> None:
    stream = io.StringIO()
    discard(stream)
    stream.write("more")
    assert sys.stderr is not stream
