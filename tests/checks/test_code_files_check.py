"""Wheels and data files of a pipeline file: checked, in the plan, and used by `tidegate test` as they are here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.user_code import describe_here
from tests.user_code.made_wheels import make_wheel
from tidegate.checks.pipeline_file import check_file, plan_file, probe
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import read_pipeline
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.testing.cases import CaseRunner
from tidegate.user_code.describe import CodeDescription
from tidegate.user_code.files import install_wheels, read_code_file
from tidegate.user_code.modules import install_modules
from tidegate.user_code.probe import ProbeRequest
from tidegate.user_code.shipping import local_code

pytestmark = pytest.mark.slow

TEXT = """\
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
code: [libs/scoring-1.2-py3-none-any.whl, model.bin]
sources:
  orders: {topic: orders, schema: {id: bigint}}
steps:
  - {name: scored, from: orders, async: "shop:score", output: {score: bigint}}
  - {name: labelled, from: scored, python: "labels:Labelled", output: {id: bigint, score: bigint, label: string}}
sinks:
  out: {from: labelled, topic: out}
tests:
  - name: an order is scored
    given: {orders: [{value: {id: 2}}]}
    expect: {out: [{value: {id: 2, score: 6, label: seven}}]}
"""
LABELS = """\
from scoring.factors import FACTOR
from tidegate.python import Out, Row, Settings, Step

class Labelled(Step):
    def open(self, settings: Settings) -> None:
        self.label = self.file("model.bin").read_text("utf-8")
        assert FACTOR in (3, 30)

    def process(self, row: Row, out: Out) -> None:
        out.emit({**row, "label": self.label})
"""
SHOP = "from scoring.factors import FACTOR\nasync def score(row): return {'score': FACTOR * row['id']}\n"


@pytest.fixture(autouse=True)
def _no_code() -> Iterator[None]:
    yield
    install_modules({})
    install_wheels(())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    make_wheel(tmp_path / "libs", {"scoring/__init__.py": "", "scoring/factors.py": "FACTOR = 3\n"})
    (tmp_path / "model.bin").write_bytes(b"seven")
    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    (tmp_path / "labels.py").write_text(LABELS, "utf-8")
    path = tmp_path / "p.yaml"
    path.write_text(TEXT, "utf-8")
    return path


def test_files_are_in_the_plan_without_content_and_cases_use_them(file: Path) -> None:
    loaded, plan = plan_file(file, {})
    wheel, model = plan.files
    assert (model.name, model.sha256, model.size_bytes) == ("model.bin", hashlib.sha256(b"seven").hexdigest(), 5)
    assert wheel.is_wheel
    text = render_explanation(derive_explanation(loaded, plan))
    assert f"files that the slots fetch: {wheel} ({wheel.size_bytes} bytes), {model} (5 bytes)" in text
    assert list(plan.modules) == ["labels.py", "shop.py"]
    assert CaseRunner(loaded, plan).run(loaded.settings.tests[0]).failures == ()


def test_a_module_next_to_the_file_comes_before_one_of_a_wheel(file: Path) -> None:
    """And a wheel is enough: the function itself may be in it."""
    (file.parent / "scoring").mkdir()
    (file.parent / "scoring" / "factors.py").write_text("FACTOR = 30\n", "utf-8")
    (file.parent / "scoring" / "__init__.py").touch()
    loaded = describe_here(read_pipeline(file, {}))
    plan = build_plan(loaded)
    (difference,) = CaseRunner(loaded, plan).run(loaded.settings.tests[0]).failures
    assert difference.sink == "out"
    make_wheel(
        file.parent / "libs",
        {"sold.py": SHOP.replace("scoring.factors", "sold_factors"), "sold_factors.py": "FACTOR = 3"},
    )
    file.write_text(TEXT.replace("shop:score", "sold:score"), "utf-8")
    loaded = describe_here(read_pipeline(file, {}))
    plan = build_plan(loaded)
    assert "shop.py" not in plan.modules
    assert CaseRunner(loaded, plan).run(loaded.settings.tests[0]).failures == ()


def test_the_probe_process_imports_from_wheels(tmp_path: Path) -> None:
    wheel = read_code_file(make_wheel(tmp_path, {"sold.py": SHOP, "scoring/factors.py": "FACTOR = 3\n"}))
    found = probe(ProbeRequest({}, ("sold:score",), tuple(map(str, local_code([wheel]).wheels))))
    assert isinstance(found["sold:score"], CodeDescription)


def test_files_that_cannot_be_used_are_refused_at_their_place(file: Path) -> None:
    file.write_text(TEXT.replace("model.bin]", "gone.bin, libs]"), "utf-8")
    with pytest.raises(ConfigErrors) as refused:
        plan_file(file, {})
    gone, folder = refused.value.problems
    assert (gone.line, gone.column, gone.path) == (5, 43, "code.1")
    assert gone.message.endswith("gone.bin cannot be read: No such file or directory")
    assert gone.remedy == "a path is relative to the directory of the pipeline file"
    assert (folder.path, folder.message) == ("code.2", f"{file.parent / 'libs'} is a directory")


def test_a_module_that_is_nowhere_may_be_in_a_wheel(file: Path) -> None:
    file.write_text(TEXT.replace("libs/scoring-1.2-py3-none-any.whl, ", ""), "utf-8")
    with pytest.raises(ConfigErrors, match=r"No module named 'scoring'.*list its wheel under `code`"):
        build_plan(describe_here(read_pipeline(file, {})))


def test_files_that_no_code_can_open_are_reported(file: Path) -> None:
    without = "".join(line for line in TEXT.splitlines(keepends=True) if "name: scored" not in line)
    without = without.replace(
        'python: "labels:Labelled", output: {id: bigint, score: bigint, label: string}', "where: id > 0"
    )
    file.write_text(without.replace("from: scored", "from: orders"), "utf-8")
    (warning,) = check_file(file, {})[1]
    assert (warning.severity, warning.path) == ("warning", "code")
    assert warning.message == "no step uses your code, so these files are not used"
