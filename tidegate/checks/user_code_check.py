"""Functions of the user's: read beside the pipeline file, and tried in a child process before anything starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.operators.calls.probe import ProbeFinding, ProbeRequest
from tidegate.operators.calls.user_code import UserCodeProblem, read_modules
from tidegate.plan.build import Checked

PROBE: Final = "tidegate.operators.calls.probe"
TIME_LIMIT_S: Final = 60.0


def check_user_code(loaded: LoadedPipeline, checked: Checked) -> Checked:
    """The plan with the modules that its functions need, or the problems that they have."""
    plan = checked.plan
    references = () if plan is None else tuple(one for node in plan.nodes for one in node.operator.user_code())
    if plan is None or not references:
        return checked
    try:
        modules = read_modules(Path(loaded.file).parent, references)
    except UserCodeProblem as problem:
        found = dict.fromkeys(references, ProbeFinding(problem.message, problem.remedy))
        return _refused(loaded, checked, found)
    found = _try(ProbeRequest(modules, references))
    if found:
        return _refused(loaded, checked, found)
    return replace(checked, plan=msgspec.structs.replace(plan, modules=modules))


def _try(request: ProbeRequest) -> dict[str, ProbeFinding]:
    # -P: nothing in the current directory may stand for a module.
    child = [sys.executable, "-P", "-m", PROBE]
    remedy = "a module must do nothing that lasts or ends the process when it is imported"
    try:
        ended = subprocess.run(
            child, input=msgspec.json.encode(request), capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return _all(request.references, f"its import has not ended within {TIME_LIMIT_S:g} s", remedy)
    if ended.returncode or not ended.stdout:
        last = (ended.stderr.decode(errors="replace").splitlines() or [""])[-1]
        said = f": {last}" if last else ""
        return _all(request.references, f"its import ended the process with code {ended.returncode}{said}", remedy)
    return msgspec.json.decode(ended.stdout, type=dict[str, ProbeFinding])


def _all(references: Iterable[str], message: str, remedy: str) -> dict[str, ProbeFinding]:
    return dict.fromkeys(references, ProbeFinding(message, remedy))


def _refused(loaded: LoadedPipeline, checked: Checked, found: dict[str, ProbeFinding]) -> Checked:
    problems: set[Problem] = set()
    for index, step in zip(loaded.step_indices, loaded.settings.steps, strict=True):
        finding = found.get(getattr(step, "async"))
        if finding is not None:
            problems.add(loaded.problem(("steps", index, "async"), finding.message, finding.remedy))
    return replace(checked, plan=None, problems=tuple(sorted({*checked.problems, *problems})))
