"""`tidegate run` as a process: its exit code stands from when the daemon has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.small_pipeline import TEXT
from tests.support.command import tidegate
from tidegate.daemon.restore_point import StartOptions
from tidegate.ids import CheckpointId

PROGRAM = """\
import os, signal, sys
from tidegate.cli.main import main
from tidegate.daemon import service
from tidegate.daemon.http import server as http

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored

class Ended:
    def __init__(self, *arguments):
        pass
    async def run(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            service.asyncio.get_running_loop().add_signal_handler(number, lambda: None)

def stop(self, stop=http.HttpServer.stop):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
        print(number.name, "sent", flush=True)
    stop(self)

service.Daemon, http.HttpServer.stop = Ended, stop
main(["run", sys.argv[1]])
"""


@pytest.mark.slow
def test_signals_to_a_daemon_that_has_ended_do_not_change_its_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    words = {"servers": "127.0.0.1:9", "directory": tmp_path, "timeout": "15m", "start": "earliest"}
    file.write_text(TEXT.format(**words, source="in", sink="out") + "http: {port: 0}\n")
    command = [sys.executable, "-c", PROGRAM, str(file)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in ran.stderr, ran.stderr
    assert (ran.returncode, ran.stdout) == (0, "SIGTERM sent\nSIGINT sent\nSIGHUP sent\n")


LOST = """\
import sys, threading
from tidegate.cli import progress
from tidegate.cli.main import main
from tidegate.daemon import service
from tidegate.errors import Superseded
from tidegate.process import log_lines

log_lines.END_S = progress.STOP_TIMEOUT_S = 0.1

class Ended:
    def __init__(self, *arguments):
        pass
    async def run(self):
        for number in range(100):
            service.logger.info("%d %s", number, "x" * 1000)
        raise Superseded("another daemon has taken over")

service.Daemon = Ended
main(["run", sys.argv[1]])
"""


def full() -> tuple[int, list[int]]:
    return os.open("/dev/full", os.O_WRONLY), []


def without_reader() -> tuple[int, list[int]]:
    reader, writer = os.pipe()
    os.close(reader)
    return writer, []


def not_read() -> tuple[int, list[int]]:
    reader, writer = os.pipe()
    return writer, [reader]


def stopped_terminal() -> tuple[int, list[int]]:
    reader, writer = os.openpty()
    return writer, [reader]


def buffered_environment() -> dict[str, str]:
    """As most users have it: what stderr could not write waits in its buffer."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {"TERM": "xterm"}


@pytest.mark.slow
@pytest.mark.parametrize("make", [full, without_reader, not_read, stopped_terminal])
def test_the_exit_code_does_not_depend_on_who_reads_the_log(
    tmp_path: Path, make: Callable[[], tuple[int, list[int]]]
) -> None:
    """It was 1, 120, 134 or 141 in place of 5: a supervisor starts the daemon again, which takes the pipeline back."""
    file = tmp_path / "pipeline.yaml"
    words = {"servers": "127.0.0.1:9", "directory": tmp_path, "timeout": "15m", "start": "earliest"}
    file.write_text(TEXT.format(**words, source="in", sink="out") + "http: {port: 0}\n")
    stderr, others = make()
    try:
        command, environ = [sys.executable, "-c", LOST, str(file)], buffered_environment()
        ran = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=stderr, env=environ, timeout=120)
    finally:
        for descriptor in (stderr, *others):
            os.close(descriptor)
    assert (ran.returncode, ran.stdout) == (5, b"")


@pytest.mark.slow
@pytest.mark.parametrize("make", [full, without_reader])
def test_the_exit_code_of_a_wrong_file_does_not_depend_on_who_reads_why(
    tmp_path: Path, make: Callable[[], tuple[int, list[int]]]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("version: 1\n")
    stderr, _ = make()
    try:
        command = [sys.executable, "-m", "tidegate", "run", str(file)]
        ran = subprocess.run(command, check=False, stderr=stderr, env=buffered_environment(), timeout=120)
    finally:
        os.close(stderr)
    assert ran.returncode == 2


class Broken:
    """A daemon with an error that nobody has thought of."""

    def __init__(self, *_: object) -> None:
        raise KeyError("opensesame-1 is no number")


def test_an_internal_error_is_in_the_log_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went past the log to stderr, as Python prints it: no line of JSON, and with whatever its text holds."""
    monkeypatch.setattr("tidegate.daemon.service.Daemon", Broken)
    file = tmp_path / "pipeline.yaml"
    words = {"servers": "127.0.0.1:9", "directory": tmp_path, "timeout": "15m", "start": "earliest"}
    more = "http: {port: 0}\nspark: {spark.executorEnv.PASSWORD: opensesame-1}\n"
    file.write_text(TEXT.format(**words, source="in", sink="out") + more)
    ended = tidegate("run", file)
    line = json.loads(ended.text.splitlines()[-1])
    assert (ended.code, line["level"]) == (1, "error")
    assert "KeyError: '*** is no number'" in line["exception"]
    assert "opensesame" not in ended.text


@pytest.mark.parametrize(("words", "accepted"), [([], None), (["--accept-gone", "42"], 42)])
def test_what_is_accepted_as_gone_is_that_of_one_checkpoint(
    monkeypatch: pytest.MonkeyPatch, words: list[str], accepted: int | None
) -> None:
    given: list[StartOptions] = []

    def run_pipeline(_file: Path, options: StartOptions, *_more: object) -> int:
        given.append(options)
        return 0

    monkeypatch.setattr("tidegate.cli.run.run_pipeline", run_pipeline)
    monkeypatch.setattr("tidegate.cli.run._keep_exit_code", lambda: None)
    assert tidegate("run", "shop.yaml", *words).code == 0
    assert given == [StartOptions(accept_gone=None if accepted is None else CheckpointId(accepted))]
