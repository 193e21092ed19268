"""`tidegate run` as a process: its exit code stands from when the daemon has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.small_pipeline import TEXT

PROGRAM = """\
import os, signal, sys
from tidegate.cli.main import main
from tidegate.daemon import service
from tidegate.daemon.http import server as http

class Ended:
    def __init__(self, *arguments):
        pass
    async def run(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            service.asyncio.get_running_loop().add_signal_handler(number, lambda: None)

def stop(self, stop=http.HttpServer.stop):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    print("signal sent", flush=True)
    stop(self)

service.Daemon, http.HttpServer.stop = Ended, stop
main(["run", sys.argv[2]])
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_a_daemon_that_has_ended_does_not_change_its_exit_code(tmp_path: Path, name: str) -> None:
    file = tmp_path / "pipeline.yaml"
    words = {"servers": "127.0.0.1:9", "directory": tmp_path, "timeout": "15m", "start": "earliest"}
    file.write_text(TEXT.format(**words, source="in", sink="out") + "http: {port: 0}\n")
    command = [sys.executable, "-c", PROGRAM, name, str(file)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in ran.stderr, ran.stderr
    assert (ran.returncode, ran.stdout) == (0, "signal sent\n")
