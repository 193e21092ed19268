"""Tests every row of the table "Changing a pipeline" in docs/operations/upgrades.md as a user would go through it.

Each change is asked about with `tidegate upgrade`, first as it is, then with the words that the table names. A
start does what was said, and what comes out after it is what the page promises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_upgrade import Directory
from tests.testing.changed_pipeline import Life
from tests.testing.changing_cases import CASES, FIXED, NOTHING, ONE, SHOP, STOCK, SUMS, VISITS, Case, Edits
from tests.testing.test_changed_pipelines import changed
from tidegate.cli.main import run_command
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import CommandLineDirectives, UpgradeOutcome

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "upgrades.md"
ORDERS = [{"id": i, "customer": f"c{i % 3}", "amount": float(i), "city": "Bern"} for i in range(2, 20)]
ONE_MORE = {"id": 99, "customer": "c0", "amount": 10.0, "city": "Bern"}
TIMED = [{"id": i, "customer": f"c{i % 3}", "at": 1_000_000 + i * 1_000} for i in range(20)]
LINES = [{"op": "c", "after": {"id": i, "item": "ink", "price": i}} for i in range(3)]
OF_CODE = ("user code", "a new `Value`")
"""Rows that `test_changed_code.py` tries, because the file does not change."""
OF_TOPICS = ("a topic that a source with several topics no longer reads",)
"""Rows that `tests/cli/test_upgrade.py` tries, because a topic has to be gone."""
RECORDS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    SHOP: ("orders", ORDERS),
    VISITS: ("orders", TIMED),
    STOCK: ("lines", LINES),
}


@cache
def begun(file: str) -> Life:
    """A checkpoint of the old file after its records."""
    life = Life(file)
    topic, records = RECORDS[file]
    life.produce(topic, *records)
    return life.checkpoint()


def ask(directory: Directory, case: Case, text: str, said: CommandLineDirectives = NOTHING) -> int:
    """The exit code of `upgrade`, which is that of `validate`."""
    words: dict[str, Iterable[str]] = {"keep": said.keep, "reset": said.reset, "drop": said.drop}
    options: list[str] = [f"--{word}={name}" for word, names in words.items() for name in names]
    code = run_command(["upgrade", "--migrate-dry-run", *options, directory.file(text)])
    assert run_command(["validate", *options, directory.file(text)]) == code
    return code


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.row.split()[-1].strip('`()')}: {case.what}")
def test_a_change_needs_what_the_table_says(tmp_path: Path, capsys: pytest.CaptureFixture[str], case: Case) -> None:
    before = begun(case.file)
    directory = Directory(tmp_path, before)
    text = changed(case.file, *case.edits)
    assert bool(case.told) == bool(case.word or case.said != NOTHING or case.never), (
        "what needs a word is refused without"
    )
    if case.told:
        assert ask(directory, case, text) == 4
        shown = capsys.readouterr().out
        assert [told for told in case.told if told not in shown] == [], shown
        with pytest.raises(RestoreRefused):
            Life(text, before)
    if case.never:
        return
    text = changed(text, *case.word)
    assert ask(directory, case, text, case.said) == 0, capsys.readouterr().out
    shown = capsys.readouterr().out
    assert [remark for remark in case.remarks if remark not in shown] == [], shown
    life = Life(text, before, case.said, backend=case.backend)
    unlike = {
        str(one.name): one.outcome for one in life.restore.upgrade.steps if one.outcome is not UpgradeOutcome.KEPT
    }
    assert unlike == case.outcomes
    if case.after:
        life.produce("orders", ONE_MORE)
        life.checkpoint()
        newest = {sink: [row for row in life.output(sink) if row["customer"] == "c0"][-1] for sink in case.after}
        assert newest == case.after


def test_every_row_of_the_table_is_tried_and_nothing_else() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index("| change | what it needs |") :]
    rows = [line.split(" | ")[0].removeprefix("| ") for line in table[: table.index("\n\n")].splitlines()[2:]]
    begins = {case.row for case in CASES} | {*OF_CODE, *OF_TOPICS}
    assert [row for row in rows if not any(row.startswith(begin) for begin in begins)] == []
    assert [begin for begin in begins if not any(row.startswith(begin) for row in rows)] == []


def test_another_name_of_the_pipeline_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = Directory(tmp_path, begun(SHOP))
    file = Path(directory.file(SHOP))
    file.write_text(re.sub("(?m)^name: shop$", "name: store", file.read_text(encoding="utf-8")), encoding="utf-8")
    assert run_command(["upgrade", str(file)]) == 4
    assert "belongs to pipeline 'shop'" in capsys.readouterr().out
    assert FIXED.startswith("`name`")


def test_going_back_is_free_up_to_the_first_checkpoint_of_the_new_file() -> None:
    reset: Edits = (("sum(value)}", "sum(value * 2)}, state: reset"),)
    Life(changed(SHOP, *reset), begun(SHOP)).produce("orders", ONE_MORE)  # it ends before its first checkpoint
    old = Life(SHOP, begun(SHOP))
    old.produce("orders", ONE_MORE)
    assert old.checkpoint().output("out")[-1] == SUMS
    new = Life(changed(SHOP, *reset), begun(SHOP))
    new.produce("orders", ONE_MORE)
    assert new.checkpoint().output("out")[-1] == ONE | {"net": 20.0}
    with pytest.raises(RestoreRefused, match="`net` of orders"):
        Life(SHOP, new)
