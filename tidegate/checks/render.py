"""Findings as people and machines read them. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

import msgspec

from tidegate.checks.findings import CHECKS, Finding, Level, is_kept
from tidegate.config.errors import render_problems
from tidegate.config.load import LoadedPipeline

WIDTH: Final = 118
_SEVERITY: Final = {Level.WARNING: "warning", Level.PROBLEM: "error"}


def render_findings(loaded: LoadedPipeline, findings: Sequence[Finding], style: str) -> str:
    """As `text`, `json` or `github`; secrets of the pipeline file are not shown."""
    if style == "json":
        return loaded.secrets(json.dumps(_document(loaded, findings), indent=2, ensure_ascii=False))
    if style == "github":
        return _commands(loaded, findings)
    return loaded.secrets("\n".join([*_table(findings), "", *_verdict(loaded, findings)]))


def _table(findings: Sequence[Finding]) -> list[str]:
    """A line for each: level, check and what it is about, what is; what should be and the remedy where it is not."""
    lines, last = [], ""
    for one in findings:
        title = CHECKS[one.check].title if one.check != last else ""
        last = one.check
        head = f"{one.level.value:<8} {title:<22} "
        text = f"{one.subject}: {one.found}" if one.subject else one.found
        lines += _wrapped(head, text)
        if one.level is not Level.OK:
            lines += _wrapped(" " * len(head) + "should be: ", one.wanted) if one.wanted else []
            lines += [" " * len(head) + f"fix: {one.mend}"] if one.mend else []
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    """Commands are never wrapped, so that they can be copied."""
    first, *more = wrap(text, WIDTH - len(head), break_long_words=False, break_on_hyphens=False) or [""]
    return [head + first, *(" " * len(head) + line for line in more)]


def _verdict(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[str]:
    guarantee = loaded.settings.checkpoints.mode.replace("-", " ")
    problems = [one for one in findings if one.level is Level.PROBLEM]
    warnings = sum(one.level is Level.WARNING for one in findings)
    counted = f"{warnings} warning{'s' if warnings != 1 else ''}"
    if not problems:
        return [f"{guarantee}: yes ({counted})"]
    lines = [f"{guarantee}: no: {len(problems)} problem{'s' if len(problems) != 1 else ''}, {counted}"]
    return [*lines, *(f"  {one.place}: {one.found}" for one in problems)]


def _document(loaded: LoadedPipeline, findings: Sequence[Finding]) -> dict[str, Any]:
    rows = []
    for one in findings:
        line, column = loaded.position(one.path)
        row = msgspec.to_builtins(one)
        del row["passing"]  # it is about the exit code of a start
        rows.append({**row, "path": loaded.display(one.path), "line": line, "column": column})
    return {
        "file": loaded.file,
        "pipeline": loaded.settings.name,
        "guarantee": loaded.settings.checkpoints.mode,
        "kept": is_kept(findings),
        "exactly_once": is_kept(findings) and loaded.settings.checkpoints.mode == "exactly-once",
        "findings": rows,
    }


def _commands(loaded: LoadedPipeline, findings: Sequence[Finding]) -> str:
    problems = []
    for one in findings:
        if one.level is not Level.OK:
            wanted = f"; should be: {one.wanted}" if one.wanted else ""
            problem = loaded.problem(one.path, f"{one.place}: {one.found}{wanted}", one.mend)
            problems.append(msgspec.structs.replace(problem, severity=_SEVERITY[one.level]))
    return render_problems(problems, "github")
