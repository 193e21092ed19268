"""Runs the command `tidegate` in the test's own process, because a refused start needs neither another process nor
Spark.

The tests in `tests/users` cover the imports and the exit of a real process. A `run` that gets as far as slots fails.
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
    """A finished command: exit code, all its output, and the part that went to stdout."""

    code: int
    text: str
    stdout: str = ""

    def says(self, code: int, *parts: str) -> None:
        """Asserts the exit code, each part of the output, and that there is no traceback."""
        assert self.code == code, f"exit code {self.code}, expected {code}:\n{self.text[-4000:]}"
        for part in parts:
            assert part in self.text, f"not said: {part!r}\n{self.text[-4000:]}"
        assert "Traceback" not in self.text, self.text[-6000:]


def tidegate(*arguments: object, environ: Mapping[str, str] | None = None) -> Ended:
    """Runs a command as a user would, with these environment variables in addition to the test's own."""
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
    """Writes to several streams."""

    def __init__(self, *streams: io.StringIO) -> None:
        super().__init__()
        self._streams = streams

    def write(self, text: str, /) -> int:
        for stream in self._streams:
            stream.write(text)
        return len(text)


@contextlib.contextmanager
def _process_of_its_own(environ: Mapping[str, str]) -> Iterator[None]:
    """Disables Spark and restores process-wide state afterwards: environment, signal handlers, logging."""
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        with (
            mock.patch.dict(os.environ, environ),
            mock.patch.object(tempfile, "tempdir", environ.get("TMPDIR", tempfile.tempdir)),
            mock.patch("tidegate.spark.gateway.start_server", side_effect=OSError),
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
    """Fails a start that retries forever instead of refusing: asyncio propagates SystemExit from anywhere."""

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
    """Returns the output of a `tidegate run` that is refused with exit code 4 before slots are started."""
    ended = tidegate("run", *options, file, environ=environ)
    ended.says(4)
    return ended.text
