"""Describes user code in the process of the test: `resolve_code` without its child process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tidegate.checks.pipeline_file import find_references
from tidegate.config.load import LoadedPipeline
from tidegate.user_code.describe import CodeDescription, CodeProblem, UserCode, describe
from tidegate.user_code.files import install_wheels, read_code_files
from tidegate.user_code.modules import install_modules, read_modules
from tidegate.user_code.shipping import local_code


def describe_here(loaded: LoadedPipeline, modules: Mapping[str, str] | None = None) -> LoadedPipeline:
    """Adds `code`. `modules`: source texts by path, instead of those next to the file. They do not stay installed."""
    references = find_references(loaded)
    texts = read_modules(Path(loaded.file).parent, references) if modules is None else dict(modules)
    files, _ = read_code_files(Path(loaded.file).parent, loaded.settings.code)
    found = describe_modules(references, texts, local_code(files).wheels)
    return replace(loaded, code=UserCode(texts, found, files))


def describe_modules(
    references: Iterable[str], modules: Mapping[str, str], wheels: Sequence[Path] = ()
) -> dict[str, CodeDescription | CodeProblem]:
    """Describes references. Modules and wheels are installed only meanwhile."""
    with ExitStack() as forgetting:
        forgetting.callback(install_wheels, ())
        forgetting.callback(install_modules, {})
        install_wheels(wheels)
        install_modules(modules)
        return {reference: describe(reference, modules) for reference in references}


def with_async_functions(loaded: LoadedPipeline) -> LoadedPipeline:
    """Adds `code` in which every reference is an `async def` of one argument, without any module."""
    found = {one: CodeDescription(reference=one, digest="0" * 64, is_async=True) for one in find_references(loaded)}
    return replace(loaded, code=UserCode({}, {**found}))
