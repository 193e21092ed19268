"""Consistency checks of `was` and `state` with the rest of the file that need only names.

Which steps have state, and with which columns, is known once the plan is built: `plan/upgrade_directives.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path
from tidegate.config.fields.upgrade_directives import DirectiveVerb
from tidegate.config.models import PipelineSettings
from tidegate.config.values import Value


def decide_change_problems(
    settings: PipelineSettings, step_indices: tuple[int, ...], values: dict[str, Value]
) -> Iterator[PathProblem]:
    """Yields every problem of names; `values` has what the file contains, parts of which may be broken."""
    there = _names(values)
    taken: dict[str, str] = {}
    for path, name, was in _renamed(settings, step_indices):
        if was == name:
            yield PathProblem(path, "it has this name already", "write its former name, or remove `was`")
        elif was in there:
            message = f"there still is a {there[was]} `{was}`: the state of one cannot continue in two"
            yield PathProblem(path, message, f"remove `was`, or remove or rename that {there[was]}")
        elif was in taken:
            message = f"`{taken[was]}` was `{was}`, too: the state of one cannot continue in two"
            yield PathProblem(path, message, "remove one `was`: that step begins with empty state")
        else:
            taken[was] = name
    for index, step in zip(step_indices, settings.steps, strict=True):
        renamed = {} if step.was is None else step.was.columns
        yield from _columns(("steps", index, "state"), step.state, renamed)


def _renamed(settings: PipelineSettings, step_indices: tuple[int, ...]) -> Iterator[tuple[Path, str, str]]:
    for name, source in settings.sources.items():
        if source.was is not None:
            yield ("sources", name, "was"), name, source.was
    for index, step in zip(step_indices, settings.steps, strict=True):
        if step.was is not None and step.was.step:
            yield ("steps", index, "was"), step.name, step.was.step


def _names(values: dict[str, Value]) -> dict[str, str]:
    """Returns the kind of everything that can have state or positions, by name, including broken parts."""
    steps, sources = values.get("steps"), values.get("sources")
    listed = steps if isinstance(steps, list) else []
    found = {str(step.get("name")): "step" for step in listed if isinstance(step, dict)}
    return found | (dict.fromkeys(sources, "source") if isinstance(sources, dict) else {})


def _columns(path: Path, word: DirectiveVerb | None, renamed: dict[str, str]) -> Iterator[PathProblem]:
    """Yields contradictory statements about one column."""
    if word is None:
        return
    former = {old: new for new, old in renamed.items()}
    for column in word.drop:
        if column in former:
            message = f"`{column}` continues as `{former[column]}`, `was` says"
            yield PathProblem((*path, "drop"), message, "remove it here, or there")
    for column in word.defaults:
        if column in renamed:
            message = f"`{column}` has the values that `{renamed[column]}` had, `was` says"
            yield PathProblem((*path, "defaults", column), message, "remove it here, or there", at_key=True)
