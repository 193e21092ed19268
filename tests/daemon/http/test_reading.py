"""Who may read, and what is written down about orders."""

from __future__ import annotations

import http.client
import logging
from pathlib import Path

import pytest

from tests.daemon.http.orders import ORDER, TOKEN, Daemon, post
from tests.waiting import PATIENCE_S
from tidegate.cli.main import run_command
from tidegate.daemon.checkpoint_requests import SavepointUnavailable
from tidegate.daemon.control_token import provide_read_token
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.server import PATHS, PROBES, HttpServer


def get(server: HttpServer, path: str, token: str = "") -> int:
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers={"Authorization": SCHEME + token} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()


READ_TOKEN = "reading-is-all-that-this-is-for"


def test_with_a_read_token_everything_but_the_probes_needs_it_or_that_of_commands(server: HttpServer) -> None:
    server.read_token = READ_TOKEN
    for path in {*PATHS, "/", "/nowhere"}:
        known = 404 if path == "/nowhere" else 503 if path in ("/readyz", "/startupz") else 200
        for written in (path, f"{path.rstrip('/')}/"):
            assert get(server, written) == (known if path in PROBES else 401), written
            assert get(server, written, "another") == (known if path in PROBES else 401), written
            assert get(server, written, READ_TOKEN) == known, written
            assert get(server, written, TOKEN) == known, written


def test_the_read_token_gives_no_orders(server: HttpServer, daemon: Daemon) -> None:
    server.read_token = READ_TOKEN
    assert post(server, "/checkpoints", ORDER, authorization=SCHEME + READ_TOKEN)[0] == 401
    assert daemon.checkpoints == 0


def test_status_takes_the_read_token_from_its_file(
    file: Path, server: HttpServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "read.token"
    server.read_token = provide_read_token(str(named))
    assert named.stat().st_mode & 0o777 == 0o600
    assert run_command(["status", str(file)]) == 1
    assert "http.read_token_file" in capsys.readouterr().err
    file.write_text(file.read_text().replace("http: {", f"http: {{read_token_file: {named}, "))
    assert run_command(["status", str(file)]) == 0


def test_the_token_that_is_printed_is_the_one_that_commands_and_the_page_need(
    file: Path, server: HttpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["token", str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert post(server, "/checkpoints", ORDER, authorization=SCHEME + printed.strip())[0] == 200


def test_a_token_that_is_not_here_is_not_printed_and_the_message_says_where_it_is(
    file: Path, server: HttpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["token", str(file), "--http", "http://127.0.0.1:1"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "token-missing" in printed.err
    assert "http.token_file" in printed.err


def test_status_into_a_file_has_no_blanks_at_the_ends_of_its_lines(
    file: Path, server: HttpServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["status", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("orders ") for line in lines)
    assert [line for line in lines if line != line.rstrip()] == []


def test_every_order_is_a_line_in_the_log_with_who_gave_it_and_what_became_of_it(
    server: HttpServer, daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post(server, "/checkpoints", ORDER)
    post(server, "/checkpoints", b'{"pipeline": "other"}')
    daemon.error = SavepointUnavailable("not now")
    post(server, "/savepoints", ORDER)
    post(server, "/stop", ORDER, authorization="")
    lines = [record.message for record in caplog.records if record.message.startswith("command ")]
    assert lines == [
        "command /checkpoints from 127.0.0.1: done",
        "command /checkpoints from 127.0.0.1: refused with 409",
        "command /savepoints from 127.0.0.1: refused with 503",
        "command /stop of an unauthenticated client: refused with 401",
    ]
    assert TOKEN not in caplog.text
