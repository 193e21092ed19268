"""The token for orders: who can read it, where the commands find it, and files that are refused."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from tidegate.daemon.control_token import (
    TokenFileRefused,
    TokenNotWritten,
    check_token_file,
    find_token,
    provide_token,
    read_token,
)
from tidegate.spark.work_directory import WorkDirectory


def test_X33_a_daemon_makes_a_token_that_only_its_user_can_read(tmp_path: Path) -> None:
    token = provide_token(tmp_path, 9095, None)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(token) >= 43
    assert read_token(file) == token


def test_X33_the_commands_find_the_token_by_the_port(tmp_path: Path) -> None:
    one, other = WorkDirectory(tmp_path), WorkDirectory(tmp_path)
    tokens = provide_token(one.path, 9095, None), provide_token(other.path, 9096, None)
    assert (find_token(tmp_path, 9095), find_token(tmp_path, 9096)) == tokens
    assert find_token(tmp_path, 9097) is None
    one.remove()
    assert find_token(tmp_path, 9095) is None
    other.remove()


def test_X33_a_named_file_is_made_once_and_kept(tmp_path: Path) -> None:
    named = tmp_path / "token"
    token = provide_token(tmp_path / "work", 9095, named)
    assert provide_token(tmp_path / "work", 9095, named) == token
    assert named.stat().st_mode & 0o777 == 0o600
    named.write_text("  of a secret manager \n")
    assert provide_token(tmp_path / "work", 9095, named) == "of a secret manager"


@pytest.mark.parametrize("named", [True, False])
def test_a_full_disk_leaves_no_empty_token_and_another_start_may_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """An empty file would be refused at every start from then on."""
    file = tmp_path / "token" if named else None
    with monkeypatch.context() as patch:
        patch.setattr("tidegate.daemon.control_token.os.fdopen", _full)
        with pytest.raises(TokenNotWritten, match="No space left on device") as told:
            provide_token(tmp_path, 9095, file)
    assert told.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []
    assert len(provide_token(tmp_path, 9095, file)) >= 43


def _full(descriptor: int, *_arguments: object, **_more: object) -> None:
    os.close(descriptor)
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("mode", [0o644, 0o606, 0o620])
def test_X33_a_token_that_others_can_read_or_write_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    named = tmp_path / "token"
    named.write_text("x" * 32)
    named.chmod(mode)
    with pytest.raises(TokenFileRefused, match=re.escape(f"chmod 600 {named}")) as refused:
        provide_token(tmp_path, 9095, named)
    assert refused.value.exit_code == 2
    with pytest.raises(TokenFileRefused, match="chmod 600"):
        check_token_file(named)
    named.chmod(0o440)  # a group that somebody has chosen
    assert read_token(named) == "x" * 32


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 2000, b"\xff" * 40, b"two\nlines of a token here"])
def test_X33_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    named = tmp_path / "token"
    named.write_bytes(content)
    named.chmod(0o600)
    with pytest.raises(TokenFileRefused, match="contains no token: write 16 to 1024"):
        read_token(named)


def test_X33_a_place_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(TokenFileRefused, match=r"missing/token.*No such file"):
        provide_token(tmp_path, 9095, tmp_path / "missing" / "token")
    with pytest.raises(TokenFileRefused, match="null"):
        read_token(Path("/tmp/a\0b"))


def test_a_check_before_the_start_makes_no_token(tmp_path: Path) -> None:
    check_token_file(tmp_path / "token")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TokenFileRefused, match="nowhere/token: the token cannot be stored"):
        check_token_file(tmp_path / "nowhere" / "token")
