"""`tidegate test` and `tidegate preview` as commands: output, exit codes, files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.testing.pipelines import ORDERS
from tidegate.cli.main import run_command

pytestmark = pytest.mark.slow  # each command tries the file's expressions in a child process

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CASES = """\
  - name: large orders go out   # a comment
    given: {orders: [{value: {id: 1, customer: ann, amount: 100}}]}
    expect: {out: [{key: ann}]}
  - name: small ones do not
    given: {orders: [{value: {id: 1, customer: ann, amount: 5}}]}
    expect: {out: [{key: ann}]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline with a case that passes and one that fails."""
    path = tmp_path / "orders.yaml"
    path.write_text(ORDERS + CASES, encoding="utf-8")
    return path


def test_exit_codes_say_whether_all_have_passed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["test", str(file)]) == 1
    out = capsys.readouterr().out
    assert "passed  large orders go out" in out
    assert f"{file}:20:5" in out
    assert "      - {key: ann}" in out
    assert run_command(["test", str(file), "-k", "large orders"]) == 0
    assert "1 passed, 1 not chosen in" in capsys.readouterr().out
    assert run_command(["test", str(file), "-k", "SMALL", "--format", "json"]) == 1
    (case,) = json.loads(capsys.readouterr().out)
    assert case["name"] == "small ones do not"


def test_wrong_files_and_names_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["test", str(file), "-k", "zzz"]) == 2
    assert "'zzz' in its name; it has: 'large orders go out', 'small ones do not'" in capsys.readouterr().err
    file.write_text(ORDERS + "  - {name: x, given: {order: []}}\n", encoding="utf-8")
    assert run_command(["test", str(file)]) == 2
    assert "there is no source `order`; did you mean `orders`?" in capsys.readouterr().err
    file.write_text(ORDERS.replace("tests:\n", ""), encoding="utf-8")
    assert run_command(["test", str(file)]) == 1
    assert "has no `tests:`" in capsys.readouterr().err


def test_preview_prints_what_would_come_out(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": 1, "customer": "ann", "amount": 100}\n{"id": 2, "customer": "ann", "amount": 200}\nx\n')
    command = ["preview", str(file), "--input", f"orders={lines}"]
    assert run_command([*command, "--limit", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "out: 2 records",
        '  {"key": "ann", "value": {"id":1,"customer":"ann","amount":100.0,"at":null}}',
        "  (1 more)",
        "totals: 2 records",
        '  {"key": "ann", "value": {"customer":"ann","n":1,"net":100.0,"last":1}}',
        "  (1 more)",
        "copy: 0 records",
    ]
    assert captured.err.startswith("skipped: source orders: orders[0] offset 2: MALFORMED_JSON")
    assert run_command([*command, "--step", "big", "--format", "json"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert json.loads(first) == {"from": "big", "value": {"id": 1, "customer": "ann", "amount": 100.0, "at": None}}
    assert run_command([*command, "--steps"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == [
        "orders: 2 records",
        "lines: 0 records",
        "big: 2 records",
        "per_customer: 2 records",
    ]
    assert run_command([*command, "--step", "bigg"]) == 2
    assert "has no step or source 'bigg'" in capsys.readouterr().err
    assert run_command([*command, "--records"]) == 2
    assert f"{lines}: line 1 is not a record: it has no `value`" in capsys.readouterr().err
    assert run_command(["preview", str(file), "--input", str(lines)]) == 2
    assert f"has several sources; write --input orders={lines}" in capsys.readouterr().err


def test_preview_reads_a_file_for_each_source(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.jsonl").write_text('{"id": 1, "customer": "ann", "amount": 100}\n')
    (tmp_path / "lines.jsonl").write_text("x\n")
    inputs = [f"--input={name}={tmp_path / name}.jsonl" for name in ("orders", "lines")]
    assert run_command(["preview", str(file), *inputs, "--step", "orders", "--step", "lines"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")] == [
        "orders: 1 record",
        "lines: 1 record",
    ]
    assert run_command(["preview", str(file), f"--input=lines={tmp_path}/none"]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_bad_record_stops_a_preview_as_it_would_the_pipeline(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.jsonl").write_text("x\n")
    text = ORDERS.replace("bad_records: skip", "bad_records: fail").replace("tests:\n", "")
    file.write_text(text, encoding="utf-8")
    lines = ["--input", f"orders={tmp_path / 'lines.jsonl'}"]
    assert run_command(["preview", str(file), *lines]) != 0
    assert "bad-record: source orders: orders[0] offset 0: MALFORMED_JSON" in capsys.readouterr().err


TESTED = [
    path
    for path in sorted(EXAMPLES.rglob("*.yaml"))
    if "\ntests:" in path.read_text(encoding="utf-8") and path.parent.name != "cookbook"
]
"""Those of the cookbook are run by tests/dev/test_cookbook.py, in one process and without their command."""


def test_the_example_that_newcomers_read_has_tests() -> None:
    assert EXAMPLES / "orders.yaml" in TESTED


@pytest.mark.parametrize("example", TESTED, ids=lambda path: path.stem)
def test_the_tests_of_every_example_pass(example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copies = shutil.copytree(EXAMPLES, tmp_path / "examples")  # with the modules and files of their steps
    code = run_command(["test", str(copies / example.relative_to(EXAMPLES))])
    assert code == 0, capsys.readouterr().out
