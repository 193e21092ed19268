"""What is wrong with a file stops the commands that would use it, and no others: never is a stand-in used."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_savepoints import Shop
from tidegate.cli.main import run_command
from tidegate.config.load import read_pipeline

NOWHERE = ("--http", "http://127.0.0.1:1")
STATUS = ("status", "FILE", *NOWHERE)
CHECKPOINT = ("checkpoint", "FILE", *NOWHERE)
STOP = ("stop", "FILE", *NOWHERE)
TAKE = ("savepoint", "FILE", *NOWHERE)
CHECKPOINTS = ("checkpoints", "FILE")
SAVEPOINTS = ("savepoint", "list", "FILE")
VERIFY = ("savepoint", "verify", "PATH", "--of", "FILE")
DELETE = ("savepoint", "delete", "PATH", "--of", "FILE")
STATE = ("state", "list", "FILE")
STATE_OF = ("state", "list", "PATH", "--of", "FILE")
LETTERS = ("dead-letters", "list", "FILE")
SHOW = ("dead-letters", "show", "FILE", "--partition", "0", "--offset", "0")
REPLAY = ("dead-letters", "replay", "FILE")
ORDERS = [STATUS, CHECKPOINT, STOP, TAKE]
BY_STORAGE = [CHECKPOINTS, SAVEPOINTS, VERIFY, DELETE, STATE, STATE_OF]
BY_KAFKA = [LETTERS, SHOW, REPLAY]
ALL = [*ORDERS, *BY_STORAGE, *BY_KAFKA]

UNDONE = [*ORDERS, *BY_KAFKA, STATE]
"""End with code 1 where the file is not in the way: no daemon, no `dead_letters`, no file of state is there."""

MISTAKES = [
    ("{directory", "{interval: '${INTERVAL}', directory", [CHECKPOINT, STOP, TAKE, *BY_STORAGE]),
    ("checkpoints: {", "chekpoints: {", ALL),
    ("name: shop", "name: shop\nhttp: {prot: 9095}", ORDERS),
    ("name: shop", "name: shop\nhtttp: {port: 9095}", ALL),
    ("name: shop", "name: ${SHOP}", [*ORDERS, *BY_KAFKA]),
    ("name: shop\n", "", [*ORDERS, *BY_KAFKA]),
    ("version: 1", "version: 2", ALL),
    ("localhost:9092", "localhost:9092, sasl.password: '${PASSWORD}'", BY_KAFKA),
    ("name: shop", "name: shop\nruntime: {shutdown_grace: 5}", [STOP]),
    ("roots: [", "rootes: [", [SAVEPOINTS]),
    ("name: shop", "name: shop\ndead_letters: {topic: '${DEAD}'}", BY_KAFKA),
    ("name: shop", "name: shop\nname: fish", [*ORDERS, *BY_KAFKA]),
    ("name: shop", "name: shop\n<<: {strict: true}", ALL),
    ("name: shop", "name: shop\nhttp: {<<: {port: 1}}", ORDERS),
    ("topic: out", "topic: out, topic: other", []),
    ("topic: out", "topic: out, <<: {key: id}", []),
    ("topic: orders", "topic: '${ORDERS}'", []),
    ("sinks:", "steps: [{name: big, from: orders, where: 1 +}, {nme: x}]\nsinks:", []),
    ("sinks:", "sinkes:", ALL),
    ("name: shop", "name: shop\ntests: 5", []),
    ("name: shop", "name: shop\nspark: {master: '${MASTER}'}\nregistry: 5", []),
]


@pytest.mark.parametrize(("right", "wrong", "stopped"), MISTAKES, ids=[wrong for _, wrong, _ in MISTAKES])
def test_a_mistake_stops_the_commands_that_would_use_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, stopped: list[tuple[str, ...]]
) -> None:
    shop = Shop(tmp_path)
    text = shop.file.read_text()
    assert right in text
    shop.file.write_text(text.replace(right, wrong))
    problems = {str(problem) for problem in read_pipeline(shop.file, {}).problems}
    assert problems
    before = sorted(tmp_path.rglob("*"))
    for command in sorted(ALL, key=lambda each: each is DELETE):
        names = {"FILE": str(shop.file), "PATH": str(shop.path)}
        code = run_command([names.get(word, word) for word in command])
        said = capsys.readouterr()
        if command is REPLAY:  # it needs the whole plan: what has the records already depends on every step
            assert (code, said.out) == (2, "")
            assert problems & set(said.err.splitlines()), command
        elif command in stopped:
            assert (code, said.out) == (2, ""), command
            assert set(said.err.splitlines()) <= problems, command
            assert sorted(tmp_path.rglob("*")) == before
        else:
            assert code == int(command in UNDONE), (command, said)
            assert not problems & set(said.err.splitlines()), command


def test_a_savepoint_that_is_needed_stays_where_the_directory_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    shop.restore()
    moved = shop.path.rename(tmp_path / "moved")
    text = shop.file.read_text()
    shop.file.write_text(text.replace(f"file://{shop.directory}", "'file://${DATA}/checkpoints'"))
    monkeypatch.delenv("DATA", raising=False)
    assert run_command(["savepoint", "delete", str(moved), "--of", str(shop.file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{shop.file}:5:26: checkpoints.directory: the variable `DATA` is not set; set it"), said
    assert list(moved.iterdir())
    monkeypatch.setenv("DATA", str(tmp_path))
    assert run_command(["savepoint", "delete", str(moved), "--of", str(shop.file)]) == 4


def test_checkpoints_of_a_site_are_missed_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path)
    line = f"checkpoints: {{directory: file://{shop.directory}}}\n"
    shop.file.write_text(shop.file.read_text().replace(line, ""))
    site = tmp_path / "site.yaml"
    site.write_text(line)
    monkeypatch.delenv("TIDEGATE_SITE", raising=False)
    assert run_command(["checkpoints", str(shop.file)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{shop.file}:2:1: `checkpoints` is missing; add it"), said
    monkeypatch.setenv("TIDEGATE_SITE", str(site))
    assert run_command(["checkpoints", str(shop.file)]) == 0


def test_a_file_with_too_much_wrong_to_look_at_it_is_no_file_without_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(tmp_path)
    many = ", ".join(f"p{number}: [1]" for number in range(101))
    shop.file.write_text(shop.file.read_text().replace("localhost:9092", f"localhost:9092, {many}"))
    assert run_command(["checkpoints", str(shop.file)]) == 2
    said = capsys.readouterr().err
    assert (
        said
        == f"{shop.file}:2:1: there are too many problems to report all of them; correct these first, and validate "
        "again\n"
    )
