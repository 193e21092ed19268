"""Every YAML example of the pages can be run: pipeline files and their fragments, and values of the chart."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.packaging.test_chart_files import problems
from tests.tidy.examples import find_examples, find_modules
from tests.tidy.pages import USED
from tests.tidy.tree import ROOT, report
from tests.user_code.made_wheels import make_code_files
from tidegate.checks.pipeline_file import check_file
from tidegate.checks.registry import Ask
from tidegate.cli.main import run_command
from tidegate.config.errors import render_problems

WITH_CASES = [page for page in USED if "\ntests:" in page.read_text(encoding="utf-8")]
ELSEWHERE = ("has no copy of", "is not in the local copies")
"""Messages about things that only the user has: schemas of a registry."""


@pytest.mark.slow
@pytest.mark.parametrize("page", USED, ids=lambda page: page.stem)
def test_every_example_of_a_page_is_valid(page: Path, tmp_path: Path) -> None:
    wrong, text = [], page.read_text(encoding="utf-8")
    _write_modules(text, tmp_path)
    for example in find_examples(text):
        place = f"{page.relative_to(ROOT)}:{example.line}"
        if example.pipeline is None:
            wrong += [f"{place}: {problem}" for problem in problems(example.values)]
            continue
        make_code_files(tmp_path, example.pipeline.get("code", []))
        file = tmp_path / "page.yaml"
        file.write_text(yaml.safe_dump(example.pipeline, sort_keys=False), encoding="utf-8")
        _, found = check_file(file, {}, Ask.COPY)
        errors = tuple(
            one for one in found if one.severity == "error" and not any(each in one.message for each in ELSEWHERE)
        )
        wrong += [f"{place}: {render_problems(errors, 'text')}"] if errors else []
    report(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CASES, ids=lambda page: page.stem)
def test_the_cases_of_an_example_with_its_own_steps_pass(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text(encoding="utf-8")
    _write_modules(text, tmp_path)
    for example in find_examples(text):
        if "tests" in example.values and "steps" in example.values:
            file = tmp_path / "page.yaml"
            file.write_text(yaml.safe_dump(example.pipeline, sort_keys=False), encoding="utf-8")
            code = run_command(["test", str(file)])
            assert code == 0, f"{page.name}:{example.line}: {capsys.readouterr().out}"


def _write_modules(text: str, directory: Path) -> None:
    for name, module in find_modules(text):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(module, encoding="utf-8")
