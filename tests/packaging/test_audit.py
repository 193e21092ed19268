"""`make audit`: pins are found, versions are compared as OSV says, and what could not be looked up is not a pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tools import audit
from tools.audit import Audit, Pin

LOCK = """numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:00
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:01
PyYAML==6.0.3 \\
    --hash=sha256:02
"""


def ranges(*events: dict[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": list(events)}]}


def record(directory: Path, name: str, **more: Any) -> None:
    affected = [{"package": {"ecosystem": "PyPI", "name": "pyyaml"}, "versions": ["6.0.3"]}]
    given = {"id": name, "modified": "2024-10-10T17:00:00Z", "affected": affected, **more}
    (directory / f"{name}.yaml").write_text(json.dumps(given), encoding="utf-8")


def test_pins_are_those_of_all_pythons() -> None:
    assert audit.read_pins(LOCK) == {Pin("numpy", "2.4.6"), Pin("numpy", "2.5.5"), Pin("pyyaml", "6.0.3")}


@pytest.mark.parametrize(
    ("affected", "expected"),
    [
        ({"versions": ["1.9", "2.0.0"]}, True),
        ({"versions": ["1.9", "broken version"]}, False),
        (ranges({"introduced": "0"}), True),
        (ranges({"introduced": "0"}, {"fixed": "2.0"}), False),
        (ranges({"introduced": "0"}, {"fixed": "2.0.1"}), True),
        (ranges({"introduced": "2.1"}), False),
        (ranges({"introduced": "0"}, {"last_affected": "2.0"}), True),
        (ranges({"introduced": "0"}, {"last_affected": "1.9"}), False),
        (ranges({"introduced": "1.0"}, {"fixed": "1.5"}, {"introduced": "1.9"}, {"fixed": "3.0"}), True),
        (ranges({"introduced": "0"}, kind="GIT"), False),
        ({}, False),
    ],
)
def test_versions_are_compared_as_in_osv(affected: dict[str, Any], *, expected: bool) -> None:
    assert audit.is_affected(Version("2.0"), affected) is expected


def test_a_copy_of_the_lists_is_searched_and_says_how_old_it_is(tmp_path: Path) -> None:
    record(tmp_path, "PYSEC-1", aliases=["CVE-1"])
    record(tmp_path, "PYSEC-2", withdrawn="2024-10-10T17:00:00Z")
    record(tmp_path, "PYSEC-3", affected=[{"package": {"ecosystem": "npm", "name": "pyyaml"}, "versions": ["6.0.3"]}])
    found = audit.search([Pin("pyyaml", "6.0.3"), Pin("numpy", "2.5.5")], tmp_path)
    assert found == Audit(["pyyaml 6.0.3: PYSEC-1 (CVE-1)"], [], f"2 records of {tmp_path}, the newest of 2024-10-10")


def test_an_empty_copy_is_not_a_pass(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no records"):
        audit.search([], tmp_path)


def test_what_the_index_has_withdrawn_is_read_from_uv() -> None:
    reason = '(reason: "Not importable.")'
    said = f"Resolved 2 packages\nwarning: `attrs==21.1.0` is yanked {reason}\nwarning: `x==1` is yanked\n"
    assert audit.read_withdrawn(said) == [
        "attrs 21.1.0 is withdrawn: Not importable.",
        "x 1 is withdrawn: no reason given",
    ]


def test_a_package_that_was_not_looked_up_fails_the_audit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCK, encoding="utf-8")
    vulns = [{"id": "PYSEC-1", "fix_versions": ["6.0.4"]}]
    pyyaml: dict[str, Any] = {"name": "pyyaml", "version": "6.0.3", "vulns": []}
    told = [[pyyaml], [{**pyyaml, "vulns": vulns}], [{"name": "pyyaml", "skip_reason": "not found"}]]
    monkeypatch.setattr(audit, "ask_index", lambda _lock: [])
    codes = []
    for one in told:
        monkeypatch.setattr(audit, "ask_service", lambda _locks, service, one=one: audit.read_report(one, service))
        codes.append(audit.main([str(lock)]))
    assert codes == [0, 1, 1]
    out = capsys.readouterr().out
    assert "pyyaml 6.0.3: PYSEC-1, mended in 6.0.4" in out
    assert "1 of them could not be looked up, pyyaml among them" in out
