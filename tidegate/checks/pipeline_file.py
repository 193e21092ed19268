"""Checks a pipeline file without brokers: its schemas, its plan, and its expressions and user code in child processes.

Expressions are tried by `expressions/compiled/probe.py`, whose process loads Polars while the file is read: on two
cores it costs 0.2 s of CPU and almost no elapsed time. User code is imported by `user_code/probe.py`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tidegate.checks.registry import Ask, resolve_schemas
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.errors import TidegateError
from tidegate.expressions.expression import Expression
from tidegate.operators.registry import choose_step_kind
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.user_code.describe import CodeDescription, CodeProblem, UserCode
from tidegate.user_code.files import read_code_files
from tidegate.user_code.modules import UserCodeProblem, read_modules, split_reference
from tidegate.user_code.probe import ProbeAnswer, ProbeRequest
from tidegate.user_code.shipping import CodeDirectoryFull, local_code

CODE_PROBE: Final = "tidegate.user_code.probe"
CODE_LIMIT_S: Final = 60.0
_CODE_REMEDY: Final = "importing a module must not take long or end the process"


class CheckKilled(TidegateError):
    """A child process was killed, so the file could not be checked. It may be right: another start can succeed."""

    code = "check-killed"


def _refuse_killed(code: int, process: str) -> None:
    """Raises CheckKilled for SIGKILL, which neither expressions nor user code cause but the kernel or a person."""
    if code == -signal.SIGKILL:
        raise CheckKilled(
            f"the {process} was killed (SIGKILL), usually because there was too little memory; "
            "give the machine or the container more, and start again"
        )


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
    except CodeDirectoryFull as error:
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
    """Import and describe user code in a child process. Raises CheckKilled if that is killed."""
    # -P: no file in the current directory may shadow a module.
    child = [sys.executable, "-P", "-m", CODE_PROBE, str(os.getpid())]
    try:
        ended = subprocess.run(
            child, input=msgspec.json.encode(request), capture_output=True, timeout=CODE_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as expired:
        return _complete(request, expired.stdout or b"", f"took more than {CODE_LIMIT_S:g} s")
    _refuse_killed(ended.returncode, "process that imports user code")
    last = _last_line(ended.stderr) if ended.returncode else ""
    return _complete(request, ended.stdout, f"ended the process with code {ended.returncode}{last}")


def _last_line(output: bytes) -> str:
    """Returns the last line as `: line`, or nothing if there is no output."""
    lines = output.decode(errors="replace").splitlines()
    return f": {lines[-1]}" if lines and lines[-1] else ""


def _complete(request: ProbeRequest, lines: bytes, reason: str) -> Found:
    """Return what was answered, and for every other reference the reason that concerns the first of them."""
    found: Found = dict(_read(lines.splitlines()))
    left = [reference for reference in request.references if reference not in found]
    if left:
        module, _ = split_reference(left[0])
        found |= dict.fromkeys(left, CodeProblem(f"the import of the module `{module}` {reason}", _CODE_REMEDY))
    return found


def _read(lines: Iterable[bytes]) -> Iterator[tuple[str, CodeDescription | CodeProblem]]:
    for line in lines:
        one = msgspec.json.decode(line, type=ProbeAnswer)
        found = one.description or one.problem
        assert found is not None
        yield one.reference, found


EXPRESSION_PROBE: Final = "tidegate.expressions.compiled.probe"
EXPRESSION_LIMIT_S: Final = 120.0
_EXPRESSION_REMEDY: Final = "see `tidegate docs expressions`"


class ExpressionCheck:
    """The child process that tries expressions; it ends with the `with` block at the latest."""

    def __enter__(self) -> Self:
        # -P: no file in the current directory may shadow a module.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", EXPRESSION_PROBE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._child:
            self._child.kill()

    def check(self, loaded: LoadedPipeline) -> CheckedPipeline:
        """Check the pipeline, and try its expressions. May be called once. Raises CheckKilled."""
        checked = check_pipeline(loaded)
        tried = self._try([one.expression for one in checked.expressions])
        if isinstance(tried, str):
            found = [loaded.problem(("steps",), tried, _EXPRESSION_REMEDY)]
        else:
            found = [
                loaded.problem_inside(one.path, one.text, 1, 1, problem, _EXPRESSION_REMEDY)
                for one, problem in zip(checked.expressions, tried, strict=True)
                if problem
            ]
        return replace(checked, plan=None, problems=tuple(sorted({*checked.problems, *found}))) if found else checked

    def _try(self, expressions: Sequence[Expression]) -> list[str] | str:
        """Try the expressions. Return a problem or an empty text for each of them, or one problem for all."""
        if not expressions:
            return []
        try:
            answer, said = self._child.communicate(msgspec.json.encode(expressions), EXPRESSION_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"testing the expressions took more than {EXPRESSION_LIMIT_S:g} s"
        _refuse_killed(self._child.returncode, "process that tests expressions")
        if self._child.returncode:
            return f"the process that tests expressions ended with code {self._child.returncode}{_last_line(said)}"
        return msgspec.json.decode(answer, type=list[str])


def read_checked(read: Callable[[], LoadedPipeline], ask: Ask = Ask.COPY) -> tuple[LoadedPipeline, CheckedPipeline]:
    """Read a pipeline with its schemas and user code, and check it. Raises ConfigErrors if it cannot be read at all."""
    with ExpressionCheck() as expressions:
        loaded = resolve_code(resolve_schemas(read(), ask))
        return loaded, expressions.check(loaded)


def plan_file(
    path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY, meanwhile: Callable[[], None] = lambda: None
) -> tuple[LoadedPipeline, Plan]:
    """Read a file into settings and a plan. Raises ConfigErrors with all problems of the file at once.

    `meanwhile` is called first, while the child process loads Polars.
    """

    def read() -> LoadedPipeline:
        meanwhile()
        return read_pipeline(path, environ)

    loaded, checked = read_checked(read, ask)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return loaded, checked.plan


def check_file(
    path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY
) -> tuple[LoadedPipeline | None, tuple[Problem, ...]]:
    """Find all problems and warnings of a file without asking a broker. Returns the file as well, if it could be read.

    Raises RegistryUnavailable if the registry is asked.
    """
    try:
        loaded, checked = read_checked(lambda: read_pipeline(path, environ), ask)
    except ConfigErrors as error:
        return None, error.problems
    return loaded, (*checked.problems, *checked.warnings)
