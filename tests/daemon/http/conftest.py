"""A server whose orders are taken, and a pipeline file that names it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.http.orders import PIPELINE, TOKEN, Daemon
from tidegate.daemon.control_token import provide_token
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.ids import OperatorName
from tidegate.spark.work_directory import WorkDirectory


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.close()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[HttpServer]:
    server = HttpServer(
        "127.0.0.1", 0, PipelineMetrics("shop", "0.1.0", operators=OperatorAccounts({OperatorName("orders"): "source"}))
    )
    server.start()
    server.commands.serve(daemon, daemon.loop, TOKEN)
    yield server
    server.stop()


@pytest.fixture
def file(tmp_path: Path, server: HttpServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The server's pipeline; its token is where a daemon keeps it."""
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(directory=tmp_path / "checkpoints", port=server.port))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    daemon.work = WorkDirectory()
    server.commands.serve(daemon, daemon.loop, provide_token(daemon.work.path, server.port, None))
    return path
