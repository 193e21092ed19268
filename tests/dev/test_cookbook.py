"""The cookbook: each example is valid, short and tested, the page names all of them, and `tidegate init` writes one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidegate
from tests.tidy.pages import find_fences
from tests.tidy.tree import ROOT
from tidegate.cli.main import run_command
from tidegate.config.load import read_pipeline
from tidegate.dev.init import ExampleMissing, find_examples, init

EXAMPLES = find_examples()
PAGE = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
LINES_MAX = 40
COLUMNS_MAX = 120
LINES_SHOWN = 3
SECTION = re.compile(r"^### \[(\w+)\]\(\.\./examples/cookbook/(\w+)\.yaml\)\n\n(.+)\n\n(?=```yml)", re.MULTILINE)
"""The head of an example in the page: its name, twice, and its question."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_valid_short_and_passes_its_cases(name: str) -> None:
    path = ROOT / "examples" / "cookbook" / f"{name}.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX
    pipeline = tidegate.load(path, environ={})
    assert pipeline.warnings == ()
    assert pipeline.cases
    for case in pipeline.cases:
        assert case.run().text == "", case.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_named_after_its_task_and_begins_with_a_question(name: str) -> None:
    settings = read_pipeline(ROOT / "examples" / "cookbook" / f"{name}.yaml", {}).settings
    assert settings.name == name
    assert str(settings.checkpoints.directory).endswith(f"/tmp/tidegate/{name}")
    assert re.fullmatch(r"[A-Z].*\?", EXAMPLES[name].question)


def test_the_page_has_the_question_and_the_lines_that_matter_of_each_example() -> None:
    sections = SECTION.findall(PAGE)
    assert sorted(name for name, _, _ in sections) == sorted(EXAMPLES)
    assert [name for name, file, _ in sections if name != file] == []
    assert {name: question for name, _, question in sections} == {
        name: example.question for name, example in EXAMPLES.items()
    }
    shown = [fence for fence in find_fences(PAGE) if fence.language == "yml"]
    assert len(shown) == len(sections)
    for (name, _, _), fence in zip(sections, shown, strict=True):
        lines = [_bare(line) for line in EXAMPLES[name].pipeline.read_text(encoding="utf-8").splitlines()]
        wanted = [_bare(line) for line in fence.text.splitlines()]
        assert 1 <= len(wanted) <= LINES_SHOWN, name
        assert [line for line in wanted if line not in lines] == [], name


def _bare(line: str) -> str:
    """A line without its comment and indentation."""
    return re.sub(r"\s+# .*", "", line).strip()


def test_the_examples_are_listed_with_their_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "--example"]) == 0
    listed = capsys.readouterr().out
    for name, example in EXAMPLES.items():
        assert re.search(rf"^{name} +{re.escape(example.question)}$", listed, re.MULTILINE)


def test_an_example_is_written_with_the_files_that_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "--example", "score_in_python"]) == 0
    assert run_command(["test", "score_in_python.yaml"]) == 0
    (tmp_path / "pipelines").mkdir()
    assert run_command(["init", "--example", "csv_to_avro", "pipelines/orders.yaml"]) == 0
    assert run_command(["test", "pipelines/orders.yaml"]) == 0, capsys.readouterr()
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*") if "pycache" not in str(path))
    assert written == [
        "pipelines/csv_to_avro.avsc",
        "pipelines/orders.yaml",
        "score_in_python.py",
        "score_in_python.yaml",
    ]


def test_nothing_is_written_where_one_of_the_files_exists(tmp_path: Path) -> None:
    (tmp_path / "score_in_python.py").write_text("mine")
    result = CliRunner().invoke(init, ["--example", "score_in_python", str(tmp_path / "scores.yaml")])
    assert result.exit_code == 1
    assert "score_in_python.py exists; choose another name" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["score_in_python.py"]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """The pipeline file itself can be written, and is removed again."""
    target = tmp_path / ("x" * 251 + ".yaml")
    result = CliRunner().invoke(init, ["--example", "sample", str(target)])
    assert result.exit_code == 1
    assert "cannot be written: File name too long" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--example", "dedupe"], "there is no example dedupe; did you mean `deduplicate`?"),
        (["--example", "zzz"], "there is no example zzz; `tidegate init --example` lists all examples"),
        (["--example", "sample", "--topic", "orders"], "--example and --topic exclude each other"),
        (["mine.yaml", "--example"], "--example needs the name of an example"),
    ],
)
def test_wrong_use_is_refused_with_a_remedy(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["init", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_installation_without_examples_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExampleMissing, match="reinstall the wheel of this version"):
        find_examples(tmp_path / "cookbook")
