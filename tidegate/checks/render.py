"""Renders findings for people and programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

import msgspec

from tidegate.checks.findings import CHECKS, Finding, Severity, derive_problem, describe_subject, is_kept
from tidegate.config.errors import render_problems
from tidegate.config.fields.counts import render_count
from tidegate.config.load import LoadedPipeline

WIDTH: Final = 118
_SEVERITY: Final = {Severity.UNKNOWN: "notice", Severity.WARNING: "warning", Severity.PROBLEM: "error"}


def render_findings(loaded: LoadedPipeline, findings: Sequence[Finding], style: str) -> str:
    """Render findings as `text`, `json` or `github`, without secrets of the pipeline file."""
    if style == "json":
        return loaded.secrets(json.dumps(_document(loaded, findings), indent=2, ensure_ascii=False))
    if style == "github":
        return _commands(loaded, findings)
    return loaded.secrets("\n".join([*_table(loaded, findings), "", *_verdict(loaded, findings)]))


def _table(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[str]:
    """Render a line per finding, and for those that are not `ok` also the expected value and the remedy."""
    lines, last = [], ""
    for one in findings:
        title = CHECKS[one.check].title if one.check != last else ""
        last = one.check
        head = f"{one.severity.value:<8} {title:<22} "
        subject = describe_subject(loaded, one) or (loaded.display(one.place) if one.check == "start" else "")
        text = f"{subject}: {one.value}" if subject else one.value
        lines += _wrapped(head, text)
        if one.severity is not Severity.OK:
            lines += _wrapped(" " * len(head) + "should be: ", one.expected) if one.expected else []
            lines += [" " * len(head) + f"fix: {one.remedy}"] if one.remedy else []
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    """Wrap a text. Commands are never wrapped, so that they can be copied."""
    first, *more = wrap(text, WIDTH - len(head), break_long_words=False, break_on_hyphens=False) or [""]
    return [head + first, *(" " * len(head) + line for line in more)]


def _verdict(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[str]:
    guarantee = loaded.settings.checkpoints.mode.replace("-", " ")
    problems = [one for one in findings if one.severity is Severity.PROBLEM]
    counted = render_count(sum(one.severity is Severity.WARNING for one in findings), "warning")
    if unknown := sum(one.severity is Severity.UNKNOWN for one in findings):
        counted += f", {unknown} unknown"
    if not problems:
        return [f"{guarantee}: yes ({counted})"]
    lines = [f"{guarantee}: no: {render_count(len(problems), 'problem')}, {counted}"]
    return [*lines, *(f"  {_title(loaded, one)}: {one.value}" for one in problems)]


def _title(loaded: LoadedPipeline, finding: Finding) -> str:
    subject = describe_subject(loaded, finding)
    return f"{finding.check} ({subject})" if subject else finding.check


def _document(loaded: LoadedPipeline, findings: Sequence[Finding]) -> dict[str, Any]:
    rows = []
    for one in findings:
        line, column = loaded.position(one.place)
        row = {name: getattr(one, name) for name in ("check", "value", "expected", "remedy", "subject", "cluster")}
        place = {"path": loaded.display(one.place), "line": line, "column": column}
        rows.append({**row, "severity": one.severity.value, "prevents_start": one.prevents_start, **place})
    return {
        "file": loaded.file,
        "pipeline": loaded.settings.name,
        "guarantee": loaded.settings.checkpoints.mode,
        "kept": is_kept(findings),
        "exactly_once": is_kept(findings) and loaded.settings.checkpoints.mode == "exactly-once",
        "findings": rows,
    }


def _commands(loaded: LoadedPipeline, findings: Sequence[Finding]) -> str:
    problems = [
        msgspec.structs.replace(derive_problem(loaded, one), severity=_SEVERITY[one.severity])
        for one in findings
        if one.severity is not Severity.OK
    ]
    return render_problems(problems, "github")
