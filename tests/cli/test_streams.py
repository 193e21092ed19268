"""Output that goes nowhere: no traceback, an exit code that is no verdict, and no file in the place of a stream."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from tidegate.cli.main import run_command
from tidegate.cli.output import READER_GONE


def without_a_reader() -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8")


def full() -> io.TextIOWrapper:
    return Path("/dev/full").open("w", encoding="utf-8")


def end(stream: io.TextIOWrapper) -> None:
    """As the interpreter does with what it has at its end."""
    stream.write("more")
    stream.close()


@pytest.mark.parametrize("command", [["schema"], ["--help"], ["docs"]])
def test_a_command_whose_reader_has_gone_ends_as_every_program_does(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = without_a_reader()
    monkeypatch.setattr(sys, "stdout", stream)
    assert run_command(command) == READER_GONE == 141
    end(stream)


@pytest.mark.parametrize("command", [["schema"], ["--version"], ["docs"]])
def test_a_full_disk_is_told(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = full()
    monkeypatch.setattr(sys, "stdout", stream)
    assert run_command(command) == 1
    assert capsys.readouterr().err == "Error: the output cannot be written: No space left on device\n"
    end(stream)


def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    """What a library prints would be written into it."""
    code = (
        "from tidegate.cli.output import open_streams; open_streams(); import os, sys; "
        f"file = open({str(tmp_path / 'checkpoint')!r}, 'w'); print('printed'); print('more', file=sys.stderr); "
        "os.write(2, b'by a library'); assert sys.stdin.read() == ''; file.write(str(file.fileno()))"
    )
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    subprocess.run(closed, timeout=PATIENCE_S, check=True)
    assert int((tmp_path / "checkpoint").read_text()) > 2


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])
def test_a_character_without_bytes_is_printed_as_its_escape(encoding: str) -> None:
    """The second is what Python makes of LC_ALL=C where it may not take UTF-8."""
    code = "from tidegate.cli.output import open_streams; open_streams(); print('caf\u00e9')"
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    ran = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, timeout=PATIENCE_S, check=True)
    assert ran.stdout == b"caf\\xe9\n"
