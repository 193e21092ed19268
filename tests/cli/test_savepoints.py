"""`tidegate savepoint list | verify | delete`, with a directory and nothing else."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from tests.coordinator.test_storage_crashes import FACTS
from tests.coordinator.values import IDENTITY, ME, completed, handle
from tests.journal.test_savepoint_maintenance import change, write
from tests.storage.forbidden import forbid
from tidegate.cli.main import run_command
from tidegate.cli.output import open_streams
from tidegate.coordinator.recovery import decide_restore
from tidegate.coordinator.restore_target import RestoreTarget, derive_chosen
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import METADATA, encode_metadata, mark_of, read_savepoint
from tidegate.storage.local import LocalStorage

PIPELINE = """
version: 1
name: shop
kafka: {{bootstrap.servers: localhost:9092}}
checkpoints: {{directory: file://{directory}}}
savepoints: {{roots: [{roots}]}}
sources:
  orders: {{topic: orders, format: raw}}
sinks:
  out: {{from: orders, topic: out, format: raw}}
"""


class Shop:
    """A pipeline file, its checkpoint directory with a journal, and a savepoint where they lie by default."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "checkpoints"
        self.file = root / "shop.yaml"
        self.roots = root / "roots"
        self.file.write_text(PIPELINE.format(directory=self.directory, roots=self.roots))
        self.storage = LocalStorage(str(self.directory))
        self.journal = Journal(self.storage, ME, retained=3, id_reserve=5)
        self.journal.take_over(IDENTITY, 1)
        self.journal.append_checkpoint(completed(1, states=[handle(1)]))
        savepoints = self.directory / "savepoints"
        self.path = savepoints / write(LocalStorage(str(savepoints)))

    def restore(self) -> None:
        """The pipeline continues from the savepoint."""
        found = read_savepoint(LocalStorage(str(self.path), create=False))
        plan = decide_restore(self.journal.state, FACTS)
        target = RestoreTarget("savepoint", f"savepoint {found.token}", found.checkpoint, IDENTITY, retained=False)
        self.journal.append_restored(plan, derive_chosen(target, IDENTITY), 2)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and all output."""
    code = run_command(["savepoint", *map(str, arguments)])
    return code, "".join(capsys.readouterr())


def test_the_list_of_a_pipeline_names_what_is_known_of_each(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    away = shop.roots / "old" / write(LocalStorage(str(shop.roots / "old")), 8)
    (away / METADATA).unlink()
    code, text = told(capsys, "list", shop.file)
    title, *lines = text.splitlines()
    assert code == 0
    assert title.split() == [
        "taken",
        "(UTC)",
        "pipeline",
        "checkpoint",
        "bytes",
        "keys",
        "parallelism",
        "files",
        "path",
    ]
    assert lines[0].split()[2:4] == ["shop", "7"]
    assert lines[0].split()[5:] == ["7", "2", "complete", f"file://{shop.path}"]
    assert lines[1].split()[-2:] == ["DAMAGED", str(away)]
    assert lines[2] == f"{away}: unfinished: 2 files of state and no {METADATA}"
    code, text = told(capsys, "list", shop.file, "--verify", "--format", "json")
    assert [(row["whole"], row["keys"], row["verified"]) for row in json.loads(text)] == [
        (True, 7, True),
        (False, None, True),
    ]


def test_the_list_reads_every_byte_only_when_asked_to(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    change(shop.path / "state" / "00001-totals-1.state", "bit")
    assert "complete" in told(capsys, "list", shop.directory)[1]
    text = told(capsys, "list", shop.directory, "--verify")[1]
    assert "DAMAGED" in text
    assert "state/00001-totals-1.state: it has" in text
    assert told(capsys, "list", shop.roots) == (0, f"no savepoints in {shop.roots}\n")
    assert not shop.roots.exists()


def test_a_pipeline_file_that_is_not_there_is_no_empty_directory(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = told(capsys, "list", shop.file.with_name("typo.yaml"))
    assert code == 2
    assert "typo.yaml:1:1: cannot be read: No such file" in text


def test_verify_ends_with_0_4_or_2(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys, "verify", shop.path)
    assert code == 0
    assert text.startswith(f"{shop.path}: whole\npipeline shop, checkpoint 7, taken 1970-01-01")
    assert re.search(r"at parallelism 2: 2 files of state, [\d,]+ bytes, 7 keys\n$", text), text
    change(shop.path / "state" / "00000-totals-0.state", "gone")
    code, text = told(capsys, "verify", shop.path)
    assert code == 4
    assert text.splitlines()[0] == f"{shop.path}: DAMAGED"
    code, text = told(capsys, "verify", shop.path, "--format", "json")
    assert (code, json.loads(text)["whole"], len(json.loads(text)["problems"])) == (4, False, 1)
    code, text = told(capsys, "verify", shop.directory)
    assert code == 2
    assert "it is a checkpoint directory" in text


def test_a_file_is_no_savepoint(shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "savepoint.tar"
    file.write_bytes(b"an archive")
    for command in ("verify", "delete"):
        code, text = told(capsys, command, file)
        assert (code, "is not a savepoint: it is a file" in text) == (2, True), text
    assert file.exists()


def test_a_path_that_is_not_utf_8_is_escaped_in_json(shop: Shop, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    moved = shop.path.rename(shop.path.with_name(os.fsdecode(b"caf\xe9")))
    open_streams()
    for arguments in (["list", str(shop.file)], ["verify", str(moved)]):
        assert run_command(["savepoint", *arguments, "--format", "json"]) == 0
        found = json.loads(capsysbinary.readouterr().out)
        assert (found[0] if isinstance(found, list) else found)["path"].endswith(str(moved))


def test_a_directory_in_an_order_is_utf_8(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys, "take", shop.file, os.fsdecode(b"caf\xe9"))
    assert (code, "is not UTF-8 text" in text) == (2, True), text


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "", "metadata.json", "state/.x"])
def test_metadata_that_lists_what_is_no_state_is_damage_and_nothing_is_deleted(
    shop: Shop, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    found = read_savepoint(LocalStorage(str(shop.path)))
    state = msgspec.structs.replace(found.checkpoint.states[0], path=name)
    checkpoint = msgspec.structs.replace(found.checkpoint, states=(state,))
    changed = encode_metadata(msgspec.structs.replace(found, checkpoint=checkpoint))
    (shop.path / METADATA).write_bytes(changed)
    for command in ("verify", "delete"):
        code, text = told(capsys, command, shop.path)
        assert (code, "which is not a state file" in text) == (4, True), text
    assert (shop.path / METADATA).read_bytes() == changed
    assert "DAMAGED" in told(capsys, "list", shop.file, "--verify")[1]


def test_a_list_shows_the_others_where_one_cannot_be_read(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    bad = shop.path.parent / write(LocalStorage(str(shop.path.parent)), 8)
    (file, *_) = (bad / "state").iterdir()
    file.unlink()
    file.mkdir()
    (file / "x").touch()
    found = read_savepoint(LocalStorage(str(shop.path)))
    (shop.path / METADATA).write_bytes(encode_metadata(msgspec.structs.replace(found, written_at_ms=10**18)))
    code, text = told(capsys, "list", shop.file, "--verify")
    assert (code, str(shop.path) in text, str(bad) in text, "1000000000000000000 ms" in text) == (0, True, True, True)


def test_a_list_names_folders_that_may_not_be_read_and_shows_what_is_next_to_them(
    shop: Shop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume of its own has `lost+found`, which is root's. Nothing was listed."""
    lost = shop.roots / "lost+found"
    lost.mkdir(parents=True)
    forbid(monkeypatch, lost)
    assert run_command(["savepoint", "list", str(shop.file), "--format", "json"]) == 0
    said = capsys.readouterr()
    assert [row["path"] for row in json.loads(said.out)] == [f"file://{shop.path}"]
    assert said.err == f"not searched (no permission to read it): {lost}\n"


def test_delete_removes_the_folder_and_says_so(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "delete", shop.path) == (0, f"deleted {shop.path} (3 files)\n")
    assert not shop.path.exists()
    code, text = told(capsys, "delete", shop.path)
    assert code == 2
    assert "is not a savepoint" in text


def test_delete_leaves_what_is_no_savepoint_and_what_is_not_finished(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "delete", shop.directory, "--force")[0] == 2
    assert told(capsys, "delete", shop.directory, "--force", "--unfinished")[0] == 2
    (shop.path / METADATA).unlink()
    assert told(capsys, "delete", shop.path)[0] == 2
    assert told(capsys, "delete", shop.path, "--unfinished") == (0, f"deleted {shop.path} (2 files)\n")
    assert shop.journal.read().newest_checkpoint is not None


def test_delete_refuses_a_savepoint_that_its_pipeline_was_restored_from(
    shop: Shop, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shop.restore()
    code, text = told(capsys, "delete", shop.path)
    assert code == 4
    assert "start without that option from now on" in text
    elsewhere = shop.path.rename(tmp_path / "elsewhere")
    assert told(capsys, "delete", elsewhere, "--of", shop.file)[0] == 4
    assert told(capsys, "delete", elsewhere, "--of", shop.file, "--force")[0] == 0


@pytest.mark.parametrize("place", ["savepoints/weekly", "before-upgrade"])
def test_a_savepoint_anywhere_below_the_checkpoint_directory_is_shown_and_guarded(
    shop: Shop, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """A command may have written it there."""
    shop.restore()
    moved = shop.directory / place / shop.path.name
    moved.parent.mkdir()
    shop.path.rename(moved)
    assert str(moved) in told(capsys, "list", shop.file)[1]
    code, text = told(capsys, "delete", moved)
    assert code == 4
    assert "start without that option from now on" in text


def test_delete_refuses_a_savepoint_while_it_is_restored(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.storage.put(mark_of(read_savepoint(LocalStorage(str(shop.path), create=False))), b"")
    code, text = told(capsys, "delete", shop.path)
    assert code == 4
    assert "a daemon is restoring it" in text
    assert told(capsys, "delete", shop.path, "--force")[0] == 0


def test_delete_refuses_where_the_journal_cannot_be_read(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in (shop.directory / "journal").iterdir():
        entry.write_bytes(b"damaged")
    code, text = told(capsys, "delete", shop.path)
    assert code == 4
    assert "It may be the only state left to restore there" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["take", "FILE", "--timeout", "10"], "'10' is not a duration"),
        (["FILE", "--timeout", "soon"], "'soon' is not a duration"),
        (["FILE", "a", "b"], "unexpected extra argument"),
        (["verify"], "Missing argument 'PATH'"),
    ],
)
def test_wrong_usage_is_refused(
    shop: Shop, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, text = told(capsys, *(shop.file if word == "FILE" else word for word in arguments))
    assert code == 2
    assert said in text
