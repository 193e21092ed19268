"""docs/python-api.md: its programs run as they are printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tidy.pages import find_fences
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "python-api.md"


@pytest.mark.slow
def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fences = list(find_fences(PAGE.read_text(encoding="utf-8")))
    (tmp_path / "orders.yaml").write_text(next(one.text for one in fences if one.language == "yaml"), encoding="utf-8")
    names: dict[str, Any] = {}
    for fence in fences:
        if fence.language == "python":
            code = compile("\n" * (fence.line - 1) + fence.text, str(PAGE), "exec")
            exec(code, names)
    names["test_totals_of_many_orders"]()
    assert names["pipeline"].outputs == ("large", "totals")
    assert [case.run().text for case in names["pipeline"].cases] == [""]
