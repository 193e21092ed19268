"""`tidegate broker` as a user runs it: one line of output, signals, what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support import clients
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.command import broker
from tidegate.dev.broker.server import PORTS_FILE
from tidegate.dev.topics.cluster import BROKER_PORT

PROGRAM = """
import signal
from tidegate.dev.broker.command import broker
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts in the background ignore it
broker(prog_name="tidegate broker")
"""


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and the line that it printed; its temporary files are in `directory`."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment = {**os.environ, "TMPDIR": str(directory)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            address = process.stdout.readline().strip()
            assert address, process.stderr.read()
            yield process, address
        finally:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.deep), signal.SIGTERM])
def test_signal_stops_it_cleanly_and_deletes_its_data(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "--port", "0") as (process, address):
        assert address.startswith("127.0.0.1:")
        assert len(list(tmp_path.glob("tidegate-broker-*"))) == 1
        process.send_signal(number)
        rest, errors = process.communicate(timeout=120)
    assert (process.returncode, rest) == (0, "")
    assert "Traceback" not in errors
    assert list(tmp_path.glob("tidegate-broker-*")) == []


@pytest.mark.slow
def test_given_directory_is_kept_topics_may_exist_already_and_a_broker_that_ends_by_itself_is_told(
    tmp_path: Path,
) -> None:
    arguments = ("--port", "0", "--dir", str(tmp_path / "data"), "--topic", "orders:3", "--topic", "totals:1")
    addresses = set()
    for ends_by_itself in (False, True):
        with running(tmp_path, *arguments) as (process, address):
            found = clients.admin({"bootstrap.servers": address}).list_topics(timeout=30).topics
            assert {name: len(found[name].partitions) for name in ("orders", "totals")} == {"orders": 3, "totals": 1}
            addresses.add(address)
            if ends_by_itself:
                children = Path(f"/proc/{process.pid}/task").glob("*/children")
                (java,) = [int(pid) for file in children for pid in file.read_text().split()]
                os.kill(java, signal.SIGKILL)
            else:
                process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=120)
            assert process.returncode == ends_by_itself
            assert ("ended by itself" in errors) == ends_by_itself
            assert "Traceback" not in errors
    assert len(addresses) == 1


@pytest.mark.parametrize("topic", ["orders", "orders:0", "orders:x", "or ders:1", ":1"])
def test_malformed_topic_is_refused_with_an_example(topic: str) -> None:
    result = CliRunner().invoke(broker, ["--topic", topic])
    assert result.exit_code == 2
    assert "orders:4" in result.output


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(broker, ["--dir", str(tmp_path / "file" / "data")])
    assert result.exit_code == 1
    assert (
        f"{tmp_path}/file/data cannot be used: Not a directory; correct its permissions, or choose another"
        in result.output
    )


def test_data_directory_with_a_comma_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(broker, ["--dir", str(tmp_path / "a,b")])
    assert result.exit_code == 1
    assert "comma" in result.output


@pytest.mark.parametrize(
    ("options", "port"),
    [
        ([], BROKER_PORT),
        (["--dir", "new"], BROKER_PORT),
        (["--dir", "used"], 4711),
        (["--dir", "used", "--port", "4712"], 4712),
        (["--port", "4712"], 4712),
    ],
)
def test_it_listens_where_topic_and_init_ask_unless_it_is_given_a_port_or_its_directory_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], port: int
) -> None:
    started: list[str] = []

    def start(server: DevelopmentBroker, _topics: dict[str, int]) -> None:
        started.append(server.bootstrap)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tidegate.dev.broker.command._run", start)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / PORTS_FILE).write_text('{"client": 4711, "controller": 4713}')
    previous = signal.getsignal(signal.SIGTERM)
    try:
        assert CliRunner().invoke(broker, options).exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert started == [f"127.0.0.1:{port}"]
