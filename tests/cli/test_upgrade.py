"""`tidegate upgrade`, and what `validate` and `explain` know of the checkpoints that are there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.coordinator.values import ME
from tests.testing import test_changed_code as changed_code
from tests.testing.changed_pipeline import HEAD, Life
from tests.testing.test_changed_pipelines import MEANT, ORDERS, RENAMED, TOTALS
from tidegate.checks.pipeline_file import plan_file
from tidegate.checks.upgrade_check import check_upgrade, find_target
from tidegate.cli.main import run_command
from tidegate.config.load import derive_opener
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.ids import CheckpointId, JournalSequence, OperatorName
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import write_savepoint
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import journal_name


def live(text: str) -> Life:
    life = Life(text)
    life.produce("orders", *ORDERS)
    return life.checkpoint()


@pytest.fixture(scope="module")
def life() -> Life:
    return live(TOTALS)


class Directory:
    """A checkpoint directory on disk with the checkpoint of a life, and files next to it."""

    def __init__(self, tmp_path: Path, life: Life, **identity: object) -> None:
        self.path = tmp_path
        self.storage = LocalStorage(str(tmp_path / "checkpoints"))
        journal = Journal(self.storage, ME, retained=3, id_reserve=5)
        self.identity: Identity = msgspec.structs.replace(life.identity, **identity)
        journal.take_over(self.identity, 1)
        for name in life.storage.list("state/"):
            self.storage.put(name, life.storage.get(name))
        self.checkpoint = msgspec.structs.replace(life.state.retained[-1].checkpoint, attempt=journal.state.attempt)
        journal.append_checkpoint(self.checkpoint)

    def file(self, text: str, name: str = "new.yaml") -> str:
        head = HEAD.replace("file:///nowhere/shop", f"file://{self.path / 'checkpoints'}")
        path = self.path / name
        path.write_text(head + text, encoding="utf-8")
        return str(path)

    def content(self) -> dict[str, bytes]:
        return {name: self.storage.get(name) for name in self.storage.list("")}


@pytest.fixture
def directory(tmp_path: Path, life: Life) -> Directory:
    return Directory(tmp_path, life)


def test_a_file_that_fits_gets_a_table_with_keys_and_bytes(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    before = directory.content()
    assert run_command(["upgrade", "--migrate-dry-run", directory.file(RENAMED)]) == 0
    text = capsys.readouterr().out
    size = sum(state.size_bytes for state in directory.checkpoint.states)
    for told in (
        "pipeline shop, from checkpoint 1 of file://",
        "renamed, it was sums",
        f"3  {size:,}  as is",
        "dry run: totals.totals: 3 entries",
        "it fits",
    ):
        assert told in text
    assert directory.content() == before


def test_a_refused_file_ends_with_4_and_names_the_step_with_its_line(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = directory.file(MEANT)
    line = next(number for number, text in enumerate(Path(file).read_text().splitlines(), 1) if "name: sums" in text)
    assert run_command(["upgrade", file]) == 4
    told = capsys.readouterr().out
    assert f"{file}:{line}:" in told
    assert ". Choose `state: keep` or `state: reset` in the file" in told, "sentences"
    assert ".;" not in told
    assert run_command(["upgrade", "--format", "json", file]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert (answer["fits"], answer["refusals"][0]["name"]) == (False, "sums")
    assert answer["refusals"][0]["choices"].keys() == {"keep", "reset"}
    assert {step["name"]: step["outcome"] for step in answer["steps"]} == {"orders": "kept", "sums": "refused"}
    assert run_command(["upgrade", "--keep", "sums", file]) == 0
    assert run_command(["upgrade", "--reset", "sums=again", file]) == 0


def test_what_the_file_does_not_have_is_reported_at_the_checkpoint_directory(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = directory.file(RENAMED.replace(" was: sums,", ""))
    assert run_command(["upgrade", file]) == 4
    assert ": checkpoints.directory: the checkpoint holds state of step 'sums'" in capsys.readouterr().out
    assert run_command(["upgrade", "--drop", "sums", file]) == 0
    assert "dropped" in capsys.readouterr().out


def test_what_the_message_about_an_aggregate_offers_is_taken_on_the_command_line(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = directory.file(TOTALS.replace(", net: sum(amount)", ""))
    for command in (["upgrade"], ["validate"], ["validate", "--drop", "sums.nett"]):
        assert run_command([*command, file]) == 4
        assert "or for a single start --drop sums.net;" in capsys.readouterr().out
    assert run_command(["upgrade", "--drop", "sums.net", "--migrate-dry-run", file]) == 0
    assert run_command(["validate", "--drop", "sums.net", file]) == 0


def test_validate_looks_at_the_checkpoints_that_are_there(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["validate", directory.file(RENAMED)]) == 0
    assert run_command(["validate", directory.file(MEANT)]) == 4
    assert "`state: keep` or `state: reset`" in capsys.readouterr().out
    assert run_command(["validate", "--keep", "sums", directory.file(MEANT)]) == 0, "as a run with that word"
    assert run_command(["validate", "--drop", "sums", directory.file(RENAMED.replace(" was: sums,", ""))]) == 0
    assert run_command(["validate", "--drop", "orders", directory.file(RENAMED)]) == 4
    assert run_command(["validate", "--keep", "sums", "--reset", "sums", directory.file(MEANT)]) == 2


def test_a_column_that_is_given_up_but_was_never_there_is_remarked(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    text = TOTALS.replace("aggregate:", "state: {drop: [totel]}, aggregate:")
    assert text != TOTALS
    assert run_command(["upgrade", directory.file(text)]) == 0
    assert "`state: {drop: [totel]}` has no effect: the checkpoint has no such column" in capsys.readouterr().out


def test_other_pipelines_and_other_key_groups_are_refused(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    file = directory.file(TOTALS)
    Path(file).write_text(Path(file).read_text().replace("name: shop", "name: store"))
    assert run_command(["upgrade", file]) == 4
    assert "belongs to pipeline 'shop'" in capsys.readouterr().out
    assert run_command(["upgrade", directory.file("max_parallelism: 64\n" + TOTALS)]) == 4
    assert "max_parallelism was 128 and is now 64" in capsys.readouterr().out


def test_a_savepoint_and_a_retained_checkpoint_can_be_asked_about(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    target = LocalStorage(str(directory.path / "saved"))
    write_savepoint(directory.storage, target, "one", directory.checkpoint, directory.identity, "t")
    path = str(directory.path / "saved" / "one")
    assert run_command(["upgrade", "--from", path, directory.file(RENAMED)]) == 0
    assert f"from savepoint {path}" in capsys.readouterr().out
    other = Path(directory.file(RENAMED, "other.yaml"))
    other.write_text(other.read_text().replace("name: shop", "name: store"))
    assert run_command(["upgrade", "--from", path, str(other)]) == 0  # as `run --restore` takes it
    capsys.readouterr()
    assert run_command(["upgrade", "--from", "1", directory.file(RENAMED)]) == 0
    assert run_command(["upgrade", "--from", "7", directory.file(RENAMED)]) == 4
    assert "checkpoint 7 is not retained (there are: 1)" in capsys.readouterr().err
    assert run_command(["upgrade", "--from", "7" * 100, directory.file(RENAMED)]) == 4
    assert run_command(["upgrade", "--from", "7" * 5000, directory.file(RENAMED)]) == 1
    assert "too long" in capsys.readouterr().err
    file = directory.file(RENAMED)
    assert run_command(["upgrade", "--from", file, file]) == 2
    assert f"{file} is not a savepoint: it is a file" in capsys.readouterr().err


def test_validate_looks_at_what_its_run_would_restore(directory: Directory) -> None:
    """An older file with the savepoint that fits it; of what is not there it says nothing, as of no checkpoints."""
    target = LocalStorage(str(directory.path / "saved"))
    write_savepoint(directory.storage, target, "one", directory.checkpoint, directory.identity, "t")
    path, other = str(directory.path / "saved" / "one"), Directory(directory.path / "other", live(MEANT))
    assert run_command(["validate", other.file(MEANT)]) == 0
    assert run_command(["validate", other.file(TOTALS)]) == 4
    assert run_command(["validate", "--restore", path, other.file(TOTALS)]) == 0
    assert run_command(["validate", "--restore", path, other.file(MEANT)]) == 4
    assert run_command(["validate", "--restore", "7", other.file(TOTALS)]) == 0


def test_a_checkpoint_that_a_running_daemon_removes_meanwhile_is_not_damaged(directory: Directory) -> None:
    """The chart asks while the old pipeline runs, and completes checkpoints."""
    loaded, plan = plan_file(Path(directory.file(RENAMED)), {})
    target, storage = find_target(str(loaded.settings.checkpoints.directory), derive_opener(loaded.settings), None)
    for state in directory.checkpoint.states:
        (directory.path / "checkpoints" / state.path).unlink()
    assert not check_upgrade(plan, target, storage, CommandLineDirectives()).fits
    journal = Journal(directory.storage, ME, retained=1, id_reserve=5)
    journal.take_over(directory.identity, 2)
    later = {"id": CheckpointId(2), "attempt": journal.state.attempt, "states": ()}
    journal.append_checkpoint(msgspec.structs.replace(directory.checkpoint, **later))
    assert check_upgrade(plan, target, storage, CommandLineDirectives()).fits


def test_a_checkpoint_is_looked_at_by_its_number_though_entries_before_it_are_missing(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run with `--restore 2 --repeat-output` takes it, and the chart asks about it in this way."""
    journal = Journal(directory.storage, ME, retained=3, id_reserve=5)
    second = {"id": CheckpointId(2), "attempt": journal.take_over(directory.identity, 2).attempt}
    journal.append_checkpoint(msgspec.structs.replace(directory.checkpoint, **second))
    (directory.path / "checkpoints" / journal_name(JournalSequence(1))).unlink()
    assert run_command(["upgrade", directory.file(RENAMED)]) == 4
    assert "is missing, but" in capsys.readouterr().err
    assert run_command(["upgrade", "--from", "2", directory.file(RENAMED)]) == 0
    assert run_command(["validate", "--restore", "2", "--repeat-output", directory.file(MEANT)]) == 4


@pytest.mark.parametrize("how", ["shorter", "longer", "missing"])
def test_files_that_are_cut_off_do_not_fit(directory: Directory, capsys: pytest.CaptureFixture[str], how: str) -> None:
    """A copy that was broken off, say: a start reads every byte, and refuses it."""
    target = LocalStorage(str(directory.path / "saved"))
    write_savepoint(directory.storage, target, "one", directory.checkpoint, directory.identity, "t")
    saved = directory.path / "saved" / "one"
    state = max(directory.checkpoint.states, key=lambda one: one.size_bytes)
    kept = directory.path / "checkpoints" / state.path
    for path in (*saved.glob("state/*.state"), kept):
        data = path.read_bytes()
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(data[:-1] if how == "shorter" else data + b"!")
    assert run_command(["upgrade", "--from", str(saved), directory.file(RENAMED)]) == 4
    told = capsys.readouterr().out
    assert "it fits" not in told
    assert "Copy the whole folder again" in told
    assert f"savepoint {saved} is damaged: " in told
    assert "state/00000-" in told
    assert run_command(["upgrade", directory.file(RENAMED)]) == 4
    told = capsys.readouterr().out
    assert state.path in told
    assert "Restore it from a backup" in told


def test_without_checkpoints_everything_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(HEAD + TOTALS, encoding="utf-8")
    assert run_command(["upgrade", str(file)]) == 0
    assert "all state starts empty" in capsys.readouterr().out
    assert run_command(["upgrade", "--format", "json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["from"] == ""


def test_a_wrong_file_ends_with_2(directory: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    file = directory.file(TOTALS.replace("sum(amount)", "sum(amonut)"))
    assert run_command(["upgrade", file]) == 2
    assert "did you mean `amount`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--keep", "sums", "--reset", "sums"], "choose one"),
        (["--keep", "sums", "--keep", "sums=x"], "given twice"),
        (["--keep", "sums="], 'STEP="why, and when"'),
        (["--keep", "sums=\udce9"], "is not UTF-8 text"),
        (["--drop", "\udce9"], "is not UTF-8 text"),
        (["--drop", "sums=x"], "STEP.COLUMN or SOURCE.TOPIC"),
        (["--drop", "sums."], "STEP.COLUMN or SOURCE.TOPIC"),
        (["--drop", ".net"], "STEP.COLUMN or SOURCE.TOPIC"),
        (["--drop", "sums", "--keep", "sums"], "is for a step that the file no longer has"),
    ],
)
def test_words_that_contradict_themselves_are_wrong_usage(
    directory: Directory, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert run_command(["upgrade", *words, directory.file(TOTALS)]) == 2
    assert told in capsys.readouterr().err


def test_explain_marks_what_counts_from_a_change_on(
    tmp_path: Path, life: Life, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = {OperatorName("sums"): {"net": CheckpointId(12)}}
    directory = Directory(tmp_path, life, begun=begun)
    assert run_command(["explain", directory.file(TOTALS)]) == 0
    assert "net counts from checkpoint 12 on" in capsys.readouterr().out
    assert run_command(["explain", "--format", "json", directory.file(TOTALS)]) == 0
    found = json.loads(capsys.readouterr().out)
    (sums,) = [one for vertex in found["vertices"] for one in vertex["operators"] if one["name"] == "sums"]
    assert sums["counts_from"] == {"net": 12}


def test_changed_code_an_added_value_and_a_raised_version_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(changed_code.text(), modules={"visits.py": changed_code.CODE})
    life.produce("clicks", *changed_code.CLICKS)
    directory = Directory(tmp_path, life.checkpoint())
    file, code = directory.file(changed_code.text()), tmp_path / "visits.py"
    was = life.identity.code[OperatorName("visits")]

    def upgrade(old: str, new: str, *options: str) -> tuple[int, str]:
        code.write_text(changed_code.changed(old, new)["visits.py"], encoding="utf-8")
        return run_command(["upgrade", *options, file]), capsys.readouterr().out

    exit_code, told = upgrade("+ 1", "+ 2")
    assert exit_code == 0
    assert f"the code of visits has changed since checkpoint 1: it was {was}, and is visits:Visits " in told
    _, told = upgrade("+ 1", "+ 2", "--format", "json")
    (change,) = json.loads(told)["code"]
    assert (change["name"], change["was"]["digest"]) == ("visits", was.digest)

    exit_code, told = upgrade("default=0)\n", 'default=0)\n    bonus = Value("bigint", default=40)\n')
    assert exit_code == 0
    assert "bonus begins at checkpoint 1" in told

    exit_code, told = upgrade("    clicks =", "    version = 2\n    clicks =")
    assert exit_code == 4
    assert "what has changed: the version of the step of clicks" in told
    assert run_command(["upgrade", "--reset", "visits", file]) == 0
    assert "version 2" in capsys.readouterr().out

    code.write_text(changed_code.CODE)
    assert run_command(["upgrade", file]) == 0
    assert "has changed" not in capsys.readouterr().out
    assert run_command(["explain", file]) == 0
    told = capsys.readouterr().out
    assert f"code {was.digest[:12]}" in told
    assert "modules that are sent to the slots: visits.py" in told
