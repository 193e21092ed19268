"""`tidegate savepoint --wait`, and `tidegate stop --savepoint`: what is said when, and what counts."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.coordinator.values import IDENTITY, ME, completed, handle
from tests.daemon.http.orders import Daemon, ending
from tidegate.cli.daemon_commands import stop
from tidegate.cli.savepoints import savepoint
from tidegate.daemon.checkpoint_requests import DirectoryRefused, SavepointNotWritten, SavepointUnavailable
from tidegate.daemon.http.server import HttpServer
from tidegate.errors import TidegateError
from tidegate.journal.journal import Journal
from tidegate.storage.base import describe_failure
from tidegate.storage.local import LocalStorage


def test_C15_a_savepoint_is_asked_for_again_until_one_can_be_taken(
    file: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.error = SavepointUnavailable("no savepoint was taken: the pipeline is starting")
    at_once = CliRunner().invoke(savepoint, [str(file)])
    assert str(at_once.exception) == daemon.error.message
    assert len(daemon.asked) == 1
    monkeypatch.setattr("tidegate.cli.savepoints.AGAIN_S", 0.0)

    def pause(_seconds: float) -> None:
        if len(daemon.asked) == 4:
            daemon.error = None

    monkeypatch.setattr("tidegate.cli.savepoints.time.sleep", pause)
    result = CliRunner().invoke(savepoint, [str(file), "--wait"], catch_exceptions=False)
    assert (result.exit_code, len(daemon.asked)) == (0, 5)
    assert result.stdout == "/mine/savepoint-shop-7-abc\n"
    assert result.stderr == f"waiting: {at_once.exception}\n", "once, until it is another one"


def test_C15_what_is_wrong_with_the_request_itself_is_not_asked_again(file: Path, daemon: Daemon) -> None:
    daemon.error = DirectoryRefused("no savepoint may be written to /x")
    result = CliRunner().invoke(savepoint, [str(file), "/x", "--wait"])
    assert (str(result.exception), len(daemon.asked)) == (daemon.error.message, 1)


@pytest.mark.parametrize(
    "error",
    [
        describe_failure("/backup", "write", "probe/x", OSError(errno.EACCES, "Permission denied")),
        describe_failure("/backup", "write", "probe/x", OSError(errno.EROFS, "Read-only file system")),
        SavepointNotWritten("savepoint 7 was given up: it could not be written to its directory (no space)"),
    ],
    ids=["no-permission", "read-only", "not-written"],
)
def test_C15_what_asking_again_does_not_cure_is_told_at_once(file: Path, daemon: Daemon, error: TidegateError) -> None:
    """It was asked for more than an hour, without a word, and each time a savepoint was copied until the disk was
    full.
    """
    daemon.error = error
    result = CliRunner().invoke(savepoint, [str(file), "--wait", "--timeout", "3s"])
    assert (str(result.exception), len(daemon.asked)) == (error.message, 1)


def test_C15_what_may_pass_is_asked_again(file: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.error = describe_failure("/backup", "write", "probe/x", OSError(errno.ESTALE, "Stale file handle"))

    def pause(_seconds: float) -> None:
        daemon.error = None

    monkeypatch.setattr("tidegate.cli.savepoints.time.sleep", pause)
    result = CliRunner().invoke(savepoint, [str(file), "--wait"])
    assert (result.exit_code, len(daemon.asked)) == (0, 2)


def test_waiting_for_a_daemon_that_does_not_come_has_an_end(file: Path, server: HttpServer) -> None:
    server.stop()
    result = CliRunner().invoke(savepoint, [str(file), "--wait", "--timeout", "100ms"])
    assert "no daemon answers at" in str(result.exception)


def test_an_answer_that_does_not_come_in_time_is_not_reported_as_no_daemon(
    file: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The savepoint may be complete a moment later."""
    monkeypatch.setattr("tidegate.cli.savepoints.ANSWER_MIN_S", 0.0)
    go_on = threading.Event()
    daemon.loop.call_soon_threadsafe(go_on.wait, 60)
    result = CliRunner().invoke(savepoint, [str(file), "--wait", "--timeout", "300ms"])
    go_on.set()
    assert str(result.exception).startswith("no savepoint was complete after 0 s. If it completes later")


def test_C15_a_stop_with_a_savepoint_prints_its_path_before_it_stops(
    file: Path, server: HttpServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr("tidegate.cli.daemon_commands.click.echo", lambda text, **_: order.append(text))
    monkeypatch.setattr("tidegate.cli.daemon_commands._stop", lambda *_: order.append("stopping"))
    result = CliRunner().invoke(stop, [str(file), "--savepoint", "--directory", "/mine"], catch_exceptions=False)
    assert (result.exit_code, daemon.asked) == (0, ["/mine"])
    assert order == ["/mine/savepoint-shop-7-abc", "stopping", "stopped"]


def test_C15_a_stop_without_the_savepoint_that_was_asked_for_stops_nothing(file: Path, daemon: Daemon) -> None:
    daemon.error = SavepointUnavailable("no savepoint was taken: it expired")
    result = CliRunner().invoke(stop, [str(file), "--savepoint"])
    assert str(result.exception) == (
        f"the pipeline was not stopped and continues: {daemon.error.message}. To stop it without a "
        "savepoint, leave out --savepoint"
    )
    assert not daemon.stopped.done()


def test_C15_a_savepoint_counts_when_the_stop_after_it_fails_and_the_message_says_so(
    file: Path, server: HttpServer, daemon: Daemon, tmp_path: Path
) -> None:
    journal = Journal(LocalStorage(str(tmp_path / "checkpoints")), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, states=[handle(1)]))
    closer = ending(server, daemon)
    result = CliRunner().invoke(stop, [str(file), "--savepoint"])
    closer.join(60)
    assert result.output == "/mine/savepoint-shop-7-abc\n"
    assert isinstance(result.exception, TidegateError)
    assert result.exception.exit_code == 1
    assert "ended without a final checkpoint" in result.exception.message
    assert result.exception.message.endswith(
        "; savepoint /mine/savepoint-shop-7-abc is complete (checkpoint 7) and is not affected"
    )


def test_a_directory_without_a_savepoint_is_refused(file: Path) -> None:
    result = CliRunner().invoke(stop, [str(file), "--directory", "/mine"])
    assert (result.exit_code, "needs --savepoint" in result.output) == (2, True)
