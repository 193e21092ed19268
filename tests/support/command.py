"""The command `tidegate` in the process of the test: a start that is refused needs no other one, and no Spark.

To a refusal a process adds its imports and its end, which tests/users see. A `run` that comes as far as slots fails.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests.waiting import PATIENCE_S
from tidegate.cli.main import run_command
from tidegate.spark.host import SparkHost


class Ended(NamedTuple):
    """A command that has ended: its exit code, all that it said, and what of that went to stdout."""

    code: int
    text: str
    stdout: str = ""

    def says(self, code: int, *parts: str) -> None:
        """It ended with this code, said each of these, and showed nobody a traceback."""
        assert self.code == code, f"exit code {self.code}, expected {code}:\n{self.text[-4000:]}"
        for part in parts:
            assert part in self.text, f"not said: {part!r}\n{self.text[-4000:]}"
        assert "Traceback" not in self.text, self.text[-6000:]


def tidegate(*arguments: object, environ: Mapping[str, str] | None = None) -> Ended:
    """Run a command as a user does, with these environment variables over the test's own."""
    out, everything = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_process_of_its_own(environ or {}))
        stack.enter_context(_deadline(PATIENCE_S))
        stack.enter_context(contextlib.redirect_stdout(_Both(out, everything)))
        stack.enter_context(contextlib.redirect_stderr(everything))
        try:
            code = run_command([str(argument) for argument in arguments])
        except SystemExit as ended:
            assert isinstance(ended.code, int), f"{ended.code}\n{everything.getvalue()[-4000:]}"
            code = ended.code
    return Ended(code, everything.getvalue(), out.getvalue())


class _Both(io.StringIO):
    """Writes to two streams."""

    def __init__(self, *streams: io.StringIO) -> None:
        super().__init__()
        self._streams = streams

    def write(self, text: str, /) -> int:
        for stream in self._streams:
            stream.write(text)
        return len(text)


@contextlib.contextmanager
def _process_of_its_own(environ: Mapping[str, str]) -> Iterator[None]:
    """Without Spark; what belongs to a whole process is as before afterwards: environment, signals, logging."""
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with (
            mock.patch.dict(os.environ, environ),
            mock.patch.object(tempfile, "tempdir", environ.get("TMPDIR", tempfile.tempdir)),
            mock.patch.object(SparkHost, "start"),
            mock.patch.object(SparkHost, "jvm_alive", new=True),
            mock.patch.object(SparkHost, "job", side_effect=AssertionError("the command has come as far as slots")),
        ):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        for number, handler in signals.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _deadline(timeout_s: float) -> Iterator[None]:
    """A start that retries for ever in place of a refusal fails: asyncio passes SystemExit on from wherever it is."""

    def end(_number: int, _frame: object) -> None:
        raise SystemExit(f"the command has not ended within {timeout_s:g} s")

    handler = signal.signal(signal.SIGALRM, end)
    left = signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, handler)


def refused(file: Path, *options: object, environ: Mapping[str, str] | None = None) -> str:
    """What a `tidegate run` says that is refused with exit code 4 before slots are started."""
    ended = tidegate("run", *options, file, environ=environ)
    ended.says(4)
    return ended.text
