"""Describes the user code that a pipeline file names, before there is a plan. It is imported in a child process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config.load import LoadedPipeline
from tidegate.operators.registry import choose_step_kind
from tidegate.user_code.describe import CodeDescription, CodeProblem, UserCode
from tidegate.user_code.files import read_code_files
from tidegate.user_code.modules import UserCodeProblem, read_modules, split_reference
from tidegate.user_code.probe import ProbeAnswer, ProbeRequest
from tidegate.user_code.shipping import NoRoomForCode, local_code

PROBE: Final = "tidegate.user_code.probe"
TIME_LIMIT_S: Final = 60.0
_REMEDY: Final = "a module must do nothing that lasts or ends the process when it is imported"

Found = dict[str, CodeDescription | CodeProblem]


def resolve_code(loaded: LoadedPipeline) -> LoadedPipeline:
    """Add `code` to a pipeline file. What cannot be used is reported by the steps that name it."""
    references, paths = find_references(loaded), loaded.settings.code
    if not references and not paths:
        return loaded
    directory = Path(loaded.file).parent
    files, refused = read_code_files(directory, paths)
    problems = [loaded.problem(("code", place), one.message, one.remedy) for place, one in refused.items()]
    try:
        wheels = local_code(files).wheels
    except NoRoomForCode as error:
        problems.append(loaded.problem(("code",), error.message, "set TMPDIR to a directory with room"))
        wheels = ()
    code = _describe(directory, references, wheels)
    return replace(
        loaded,
        code=msgspec.structs.replace(code, files=files),
        problems=tuple(sorted({*loaded.problems, *problems})),
    )


def _describe(directory: Path, references: tuple[str, ...], wheels: Iterable[Path]) -> UserCode:
    try:
        modules = read_modules(directory, references)
    except UserCodeProblem as problem:
        return UserCode({}, dict.fromkeys(references, CodeProblem(problem.message, problem.remedy)))
    if not references:
        return UserCode(modules)
    return UserCode(modules, probe(ProbeRequest(modules, references, tuple(map(str, wheels)))))


def find_references(loaded: LoadedPipeline) -> tuple[str, ...]:
    """Return the user code of all steps, each once."""
    steps = loaded.settings.steps
    return tuple(dict.fromkeys(one for step in steps for one in choose_step_kind(step).code(step).values()))


def probe(request: ProbeRequest) -> Found:
    """Import and describe user code in a child process."""
    # -P: no file in the current directory may shadow a module.
    child = [sys.executable, "-P", "-m", PROBE]
    try:
        ended = subprocess.run(
            child, input=msgspec.json.encode(request), capture_output=True, timeout=TIME_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as expired:
        return _complete(request, expired.stdout or b"", f"has not ended within {TIME_LIMIT_S:g} s")
    last = (ended.stderr.decode(errors="replace").splitlines() or [""])[-1]
    said = f": {last}" if last and ended.returncode else ""
    return _complete(request, ended.stdout, f"ended the process with code {ended.returncode}{said}")


def _complete(request: ProbeRequest, lines: bytes, reason: str) -> Found:
    """Return what was answered, and for every other reference the reason that concerns the first of them."""
    found: Found = dict(_read(lines.splitlines()))
    left = [reference for reference in request.references if reference not in found]
    if left:
        module, _ = split_reference(left[0])
        found |= dict.fromkeys(left, CodeProblem(f"the import of the module `{module}` {reason}", _REMEDY))
    return found


def _read(lines: Iterable[bytes]) -> Iterator[tuple[str, CodeDescription | CodeProblem]]:
    for line in lines:
        one = msgspec.json.decode(line, type=ProbeAnswer)
        found = one.description or one.problem
        assert found is not None
        yield one.reference, found
