"""Orders to a running daemon over HTTP: who may give them, what is answered, and the commands that send them."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from tests.coordinator.values import IDENTITY, ME, committable, completed, handle
from tests.daemon.http.orders import ORDER, PIPELINE, TOKEN, Daemon, ending_once_looked_at, post
from tests.journal.test_savepoint_maintenance import write
from tidegate.cli.daemon_commands import checkpoint, checkpoints, read_rows, status, stop
from tidegate.cli.savepoints import savepoint
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.restore_target import derive_chosen, find_retained
from tidegate.daemon.checkpoint_requests import (
    CheckpointUnavailable,
    DirectoryRefused,
    SavepointDone,
    SavepointUnavailable,
)
from tidegate.daemon.control_token import provide_token
from tidegate.daemon.http.commands import COMMANDS, JSON, ORDERS_MAX
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.status import Status
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, OperatorName
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import METADATA
from tidegate.storage.local import LocalStorage
from tidegate.storage.open import open_storage


def test_C15_an_order_is_carried_out_and_answered(server: HttpServer, daemon: Daemon) -> None:
    status, answer = post(server, "/savepoints", b'{"pipeline": "shop", "directory": "/mine"}')
    assert (status, answer["path"], answer["checkpoint"]) == (200, "/mine/savepoint-shop-7-abc", 7)
    assert post(server, "/savepoints", b'{"pipeline": "shop"}')[0] == 200
    assert daemon.asked == ["/mine", None]


def test_C38_a_checkpoint_is_ordered_and_answered(server: HttpServer, daemon: Daemon) -> None:
    assert post(server, "/checkpoints", ORDER) == (200, {"checkpoint": 7, "duration_ms": 35, "size_bytes": 10})
    daemon.error = CheckpointUnavailable("no checkpoint was taken: the pipeline is restarting")
    answer = {"code": "checkpoint-unavailable", "message": daemon.error.message}
    assert post(server, "/checkpoints", ORDER) == (503, answer)
    assert daemon.checkpoints == 2


def test_an_order_that_comes_when_the_daemon_has_just_ended_is_hung_up_on(
    server: HttpServer, daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    """As on those that wait then: the commands look into the journal. It was an internal error, with a traceback."""
    daemon.close()
    for path, *_ in COMMANDS:
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            post(server, path, ORDER)
    assert "internal error" not in caplog.text


@pytest.mark.parametrize(
    ("body", "content_type", "status", "told"),
    [
        (b'{"pipeline": "other"}', JSON, 409, "'shop', not 'other': two files may have the same `http.port`"),
        (b'{"pipeline": "shop"}', "text/plain", 415, "send application/json"),
        (b'{"pipeline": "shop"}', "application/x-www-form-urlencoded", 415, "send application/json"),
        (b'{"pipeline": "shop"}' + b" " * 4096, JSON, 413, "the body has more than 4096 bytes"),
        (b"{", JSON, 400, "truncated"),
        (b'{"pipeline": "\xff\xfe"}', JSON, 400, "can't decode"),
        (b'{"pipeline": "shop", "more": 1}', JSON, 400, "unknown field"),
        (b"{}", JSON, 400, "missing required field"),
    ],
)
def test_what_is_no_order_for_this_daemon_is_refused(
    server: HttpServer, daemon: Daemon, body: bytes, content_type: str, status: int, told: str
) -> None:
    for path, *_ in COMMANDS:
        found, answer = post(server, path, body, content_type=content_type)
        assert (found, told in answer["message"]) == (status, True), answer
    assert (daemon.asked, daemon.checkpoints) == ([], 0)
    assert not daemon.stopped.done()


def test_an_order_that_fails_is_told_with_its_reason(server: HttpServer, daemon: Daemon) -> None:
    daemon.error = SavepointUnavailable("no savepoint was taken: the pipeline is restarting")
    status, answer = post(server, "/savepoints", b'{"pipeline": "shop"}')
    assert (status, answer) == (503, {"code": "savepoint-unavailable", "message": daemon.error.message})


def test_before_the_daemon_is_up_there_is_nobody_to_take_orders() -> None:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
    server.start()
    try:
        assert post(server, "/stop", b'{"pipeline": "shop"}')[0] == 503
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        ({"authorization": ""}, 401, "the request has no token: run the command as the daemon's user"),
        ({"authorization": "Bearer wrong"}, 401, "a wrong token"),
        ({"authorization": f"Basic {TOKEN}"}, 401, "a wrong token"),
        ({"origin": "http://127.0.0.1:9095"}, 403, "not accepted from web pages"),
        ({"origin": "null"}, 403, "not accepted from web pages"),
        ({"host": "rebound.example:9095"}, 421, "'rebound.example:9095' is not a name of this server: use its address"),
        ({"host": "10.0.0.5"}, 421, "use its address"),
    ],
)
def test_X33_an_order_of_a_stranger_or_of_a_web_page_is_refused(
    server: HttpServer, daemon: Daemon, headers: dict[str, str], status: int, told: str
) -> None:
    for path, *_ in COMMANDS:
        found, answer = post(server, path, ORDER, **headers)
        assert (found, told in answer["message"]) == (status, True), answer
    assert (daemon.asked, daemon.checkpoints) == ([], 0)
    assert not daemon.stopped.done()


def test_X33_who_may_not_give_orders_is_refused_before_anything_of_the_body_is_read(server: HttpServer) -> None:
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/savepoints")
    connection.putheader("Content-Length", "1000000000")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:1", "[::1]:9095"])
def test_X33_an_order_reaches_the_server_by_every_name_of_its_own_machine(
    server: HttpServer, daemon: Daemon, host: str
) -> None:
    assert post(server, "/savepoints", ORDER, host=host)[0] == 200
    assert daemon.asked == [None]


@pytest.mark.parametrize("directory", ["/etc/shadow.d", "/mine\0/x"])
def test_X35_a_directory_that_cannot_be_is_the_orders_fault(server: HttpServer, daemon: Daemon, directory: str) -> None:
    daemon.error = DirectoryRefused("not there")
    status, answer = post(server, "/savepoints", json.dumps({"pipeline": "shop", "directory": directory}).encode())
    assert (status, answer["code"]) == (400, "savepoint-directory-refused")


def test_X30_only_so_many_orders_are_under_way_at_a_time(
    server: HttpServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_directory: str | None) -> SavepointDone:
        waiting.append(asyncio.get_running_loop().create_future())
        if len(waiting) == ORDERS_MAX:
            full.set()
        await waiting[-1]
        raise SavepointUnavailable("it was given up")

    waiting: list[asyncio.Future[None]] = []
    full, answers = threading.Event(), []
    monkeypatch.setattr(daemon, "take_savepoint", never)
    asking = [
        threading.Thread(target=lambda: answers.append(post(server, "/savepoints", ORDER)[0]))
        for _ in range(ORDERS_MAX)
    ]
    for each in asking:
        each.start()
    assert full.wait(60)
    assert post(server, "/savepoints", ORDER)[1]["code"] == "busy"
    for one in waiting:
        daemon.loop.call_soon_threadsafe(one.set_result, None)
    for each in asking:
        each.join(60)
    assert answers == [503] * ORDERS_MAX


def test_C15_the_command_prints_the_path_and_makes_relative_directories_absolute(file: Path, daemon: Daemon) -> None:
    result = CliRunner().invoke(savepoint, [str(file), "mine"], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "/mine/savepoint-shop-7-abc\n")
    assert daemon.asked == [str(Path("mine").absolute())]


def test_C38_the_command_prints_the_number(file: Path, daemon: Daemon) -> None:
    result = CliRunner().invoke(checkpoint, [str(file)], catch_exceptions=False)
    assert (result.exit_code, result.output, daemon.checkpoints) == (0, "7\n", 1)


def test_X33_the_commands_take_the_token_from_the_named_file(file: Path, server: HttpServer, daemon: Daemon) -> None:
    assert daemon.work is not None
    daemon.work.remove()
    refused = CliRunner().invoke(savepoint, [str(file)])
    assert isinstance(refused.exception, TidegateError)
    assert "the request has no token" in refused.exception.message
    named = file.parent / "token"
    server.commands.serve(daemon, daemon.loop, provide_token(file.parent, server.port, named))
    by_option = CliRunner().invoke(savepoint, [str(file), "--token-file", str(named)], catch_exceptions=False)
    file.write_text(file.read_text().replace("http: {", f"http: {{token_file: {named}, "))
    by_setting = CliRunner().invoke(savepoint, [str(file)], catch_exceptions=False)
    assert (by_option.exit_code, by_setting.exit_code, daemon.asked) == (0, 0, [None, None])


def test_the_stop_command_waits_until_the_daemon_has_gone(
    file: Path, server: HttpServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ending_once_looked_at(daemon, server, monkeypatch):
        result = CliRunner().invoke(stop, [str(file)], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "stopped\n")


@pytest.mark.parametrize(
    ("final", "began_again", "went_back"),
    [(True, False, False), (False, False, False), (True, True, False), (True, True, True)],
)
def test_what_a_daemon_has_done_that_hangs_up_at_the_order_is_in_its_journal(
    file: Path, tmp_path: Path, *, final: bool, began_again: bool, went_back: bool
) -> None:
    """The final checkpoint of a run before says nothing about this one, nor does one that it has gone back to."""
    journal = Journal(LocalStorage(str(tmp_path / "checkpoints")), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, states=[handle(1)], final=final))
    if began_again:
        plan = decide_restore(
            journal.take_over(IDENTITY, 2), RestoreFacts(IDENTITY, {}, frozenset({OperatorName("totals")}))
        )
        if went_back:
            journal.append_restored(plan, derive_chosen(find_retained(journal.state, CheckpointId(1)), IDENTITY), 3)
    with socket.create_server(("127.0.0.1", 0)) as dying:
        hangs_up = threading.Thread(target=_hang_up, args=(dying,))
        hangs_up.start()
        result = CliRunner().invoke(stop, [str(file), "--http", f"http://127.0.0.1:{dying.getsockname()[1]}"])
        hangs_up.join(60)
    if final and not began_again:
        assert (result.exit_code, result.output) == (0, "stopped\n")
    else:
        assert "the daemon ended without a final checkpoint" in str(result.exception)


def test_a_daemon_that_hangs_up_at_another_order_is_not_asked_whether_it_runs(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dying:
        hangs_up = threading.Thread(target=_hang_up, args=(dying,))
        hangs_up.start()
        result = CliRunner().invoke(checkpoint, [str(file), "--http", f"http://127.0.0.1:{dying.getsockname()[1]}"])
        hangs_up.join(60)
    assert "ended before it responded" in str(result.exception)
    assert str(result.exception).endswith(": see its log")


def _hang_up(listener: socket.socket) -> None:
    """Take one order, and answer nothing."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)


def test_a_daemon_that_is_not_there_is_told_with_the_address(file: Path, server: HttpServer) -> None:
    server.stop()
    result = CliRunner().invoke(savepoint, [str(file)])
    assert isinstance(result.exception, TidegateError)
    assert f"no daemon answers at {server.address} (Connection refused); check" in result.exception.message


def test_port_0_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(directory=tmp_path, port=0))
    result = CliRunner().invoke(stop, [str(path)])
    assert result.exit_code == 2
    assert "--http" in result.output
    result = CliRunner().invoke(stop, [str(path), "--http", "ftp://x"])
    assert "is not the address of a daemon" in result.output


def test_the_list_of_checkpoints_needs_no_daemon_and_creates_nothing(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "no checkpoints in" in result.output
    assert not (tmp_path / "checkpoints").exists()


def test_the_list_tells_what_is_committed_and_what_is_only_decided(file: Path, tmp_path: Path) -> None:
    journal = Journal(LocalStorage(str(tmp_path / "checkpoints")), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, states=[handle(1)], committables=[committable(1)]))
    journal.append_checkpoint(
        completed(2, states=[handle(2)], committables=[committable(2, producer_id=101)], final=True)
    )
    rows = read_rows(str(tmp_path / "checkpoints"), open_storage)
    assert [(row.id, row.kind, row.output, row.size_bytes) for row in rows] == [
        (1, "checkpoint", "committed", 10),
        (2, "final", "decided, 1 transaction not confirmed yet", 10),
    ]
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "1970-01-01 00:00:01" in result.output
    listed = CliRunner().invoke(checkpoints, [str(file), "--format", "json"], catch_exceptions=False)
    assert [row["id"] for row in json.loads(listed.output)] == [1, 2]


def test_the_list_tells_the_begin_and_a_savepoint_that_was_not_finished(file: Path, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    journal = Journal(storage, ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    begin = msgspec.structs.replace(completed(1), starts=((OperatorName("orders"), "latest"),))
    journal.append_checkpoint(begin)
    storage.put("savepoints/savepoint-shop-2-0123/state/00000-totals-0.state", b"state")
    rows = read_rows(str(tmp_path / "checkpoints"), open_storage)
    assert [(row.id, row.kind) for row in rows] == [(1, "begin"), (None, "unfinished")]
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "/savepoints/savepoint-shop-2-0123 (can be deleted" in result.output


def test_the_list_has_savepoints_of_any_depth_and_says_which_cannot_be_read(tmp_path: Path) -> None:
    """A folder of whole savepoints was called one that can be deleted, and a damaged one hid the whole list."""
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    journal = Journal(storage, ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1))
    savepoints = tmp_path / "checkpoints" / "savepoints"
    whole = savepoints / "weekly" / write(LocalStorage(str(savepoints / "weekly")), 1)
    damaged, hollow = (savepoints / write(LocalStorage(str(savepoints)), number) for number in (2, 3))
    (damaged / METADATA).write_bytes(b"no metadata")
    next(hollow.glob("state/*")).unlink()
    rows = {row.output.partition(": ")[0]: row for row in read_rows(str(tmp_path / "checkpoints"), open_storage)}
    assert [(path, row.id, row.kind) for path, row in rows.items()] == [
        ("committed", 1, "checkpoint"),
        (str(damaged), None, "damaged"),
        (str(hollow), 7, "damaged"),
        (str(whole), 7, "savepoint"),
    ]
    assert "metadata.json is corrupt" in rows[str(damaged)].output
    assert "1 file missing" in rows[str(hollow)].output


def test_status_shows_how_the_pipeline_is_doing(server: HttpServer, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.format(directory=tmp_path, port=server.address.rpartition(":")[2]))
    shown = CliRunner().invoke(status, [str(file)])
    assert (shown.exit_code, shown.output.split()[:2]) == (0, ["shop", "starting"]), shown.output
    assert "lag unknown" in shown.output
    assert shown.output.splitlines()[-3].split() == ["orders", "source", "0", "0", "0", "0", "0", "0%"]
    as_json = CliRunner().invoke(status, [str(file), "--format", "json"])
    found = msgspec.json.decode(as_json.output, type=Status)
    assert (found.pipeline, [one.name for one in found.operators]) == ("shop", ["orders"])


def test_status_is_not_cut_where_no_terminal_says_how_wide_it_is(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.format(directory=tmp_path, port=server.address.rpartition(":")[2]))
    found = server._metrics.snapshot()
    operators = tuple(msgspec.structs.replace(one, rows_in=10**15, rows_out=10**15) for one in found.operators)
    long = msgspec.structs.replace(
        found,
        records_committed=10**15,
        lag_records=10**15,
        bad_records=10**9,
        reason="why " * 50,
        operators=operators,
    )
    monkeypatch.setattr(server._metrics, "snapshot", lambda: long)
    shown = CliRunner().invoke(status, [str(file)]).output
    assert f"committed {10**15:,}   lag {10**15:,}   bad {10**9:,}" in shown
    assert long.reason.strip() in shown
    assert shown.splitlines()[-3].split()[2:4] == [f"{10**15:,}"] * 2


def test_status_of_another_pipeline_is_refused(server: HttpServer, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    port = server.address.rpartition(":")[2]
    file.write_text(PIPELINE.format(directory=tmp_path, port=port).replace("name: shop", "name: other"))
    shown = CliRunner().invoke(status, [str(file)])
    told = f"the daemon at {server.address} runs pipeline shop, not other: two files may have the same `http.port`; "
    assert str(shown.exception) == told + "name the address of the right daemon with --http"


@pytest.mark.parametrize("command", [status, checkpoint, savepoint], ids=["status", "checkpoint", "savepoint"])
@pytest.mark.parametrize("answer", [b"<html>", b"{}"], ids=["no-json", "other-json"])
def test_something_else_that_answers_is_named(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: click.Command, answer: bytes
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE.format(directory=tmp_path, port=server.address.rpartition(":")[2]))
    for module in ("control_client", "daemon_commands", "savepoints"):
        monkeypatch.setattr(f"tidegate.cli.{module}.ask_daemon", lambda *_how: answer)
    shown = CliRunner().invoke(command, [str(file)])
    assert f"the server at {server.address} is not a Tidegate daemon" in str(shown.exception)
