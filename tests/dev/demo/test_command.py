"""`tidegate demo` where it cannot begin."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Never

import pytest

from tidegate.cli.main import run_command
from tidegate.dev.demo import show
from tidegate.kafka.errors import BrokerUnavailable


def test_a_broker_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It waited for a minute, and ended with the traceback of a future."""

    def refuse(kafka: dict[str, str]) -> Never:
        raise BrokerUnavailable(f"no broker is reachable: {kafka['bootstrap.servers']}: Connection refused")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setattr(show, "read_topics", refuse)
    assert run_command(["demo", "--orders", "10000"]) == 1
    assert "the demo failed: no broker is reachable: 127.0.0.1:1: Connection refused" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Kafka is fetched into it. A home that cannot be written ended in a traceback."""
    (tmp_path / "file").write_text("nobody can write below a file, not even root")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("KAFKA_BOOTSTRAP", raising=False)
    assert run_command(["demo", "--orders", "10000"]) == 1
    said = capsys.readouterr().err
    assert f"the demo failed: {tmp_path}/file" in said
    assert "TIDEGATE_CACHE" in said
