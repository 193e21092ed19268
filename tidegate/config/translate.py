"""Values -> settings; pydantic's errors -> problems in the words of the pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tidegate.config.errors import PathProblem
from tidegate.config.models import PipelineSettings, model_at
from tidegate.config.values import Value
from tidegate.settings.base import Path, Settings
from tidegate.settings.fields import CONFIG, describe_value
from tidegate.settings.suggest import derive_suggestion

_COMMANDS = {
    "restore": "it is an option: `tidegate run FILE --restore ID|PATH`",
    "savepoint": "it is a command: `tidegate savepoint FILE [DIRECTORY]`",
    "savepoints": "take one by `tidegate savepoint FILE [DIRECTORY]`; where it may be is `savepoints.roots`",
}
"""What users look for in the file and find on the command line."""
_SECTIONS: tuple[Path, ...] = ((), ("checkpoints",), ("state",), ("restart",), ("runtime",), ("http",), ("logging",))


def derive_problem(error: ErrorDetails) -> PathProblem:
    """One error of pydantic in our words."""
    path: Path = tuple(error["loc"])
    at_key = bool(path) and path[-1] == "[key]"
    if at_key:
        path = path[:-1]
    context: dict[str, Any] = error.get("ctx") or {}
    kind = error["type"]
    if kind == CONFIG:
        below = (context["at"],) if context["at"] else ()
        return PathProblem(path + below, context["message"], context["remedy"], at_key, context["column"])
    if kind == "missing":
        return PathProblem(path[:-1], f"`{path[-1]}` is missing", _missing_remedy(path), at_key=True)
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return PathProblem(
            path, f"expected a mapping, got {describe_value(error['input'])}", "write `name: value` lines"
        )
    if kind == "list_type":
        return PathProblem(path, f"expected a list, got {describe_value(error['input'])}", "begin each item with `-`")
    if kind == "too_short":
        return PathProblem(path, "is empty", "name at least one")
    if kind == "too_long":
        return PathProblem(path, f"has more than {context.get('max_length')} items", "split the pipeline")
    return PathProblem(path, error["msg"], "see `tidegate schema`")


def _missing_remedy(path: Path) -> str:
    model = model_at(path[:-1])
    for name, info in model.model_fields.items() if model else ():
        if (info.alias or name) == path[-1] and info.description:
            return f"add it: {info.description[0].lower()}{info.description[1:].rstrip('.')}"
    return "add it"


def _unknown_key(path: Path) -> PathProblem:
    model = model_at(path[:-1])
    word = str(path[-1])
    if model is not None and word in model.LATER:
        return PathProblem(path, f"`{word}` is not supported yet", model.LATER[word], at_key=True)
    if word == "<<":
        remedy = "write the settings out: an alias (`*a`) stands for a whole value only"
        return PathProblem(path, "YAML 1.2 has no merge keys", remedy, at_key=True)
    remedy = _COMMANDS.get(word) or _home_of(word, path) or derive_suggestion(word, _keys_of(model))
    return PathProblem(path, "unknown key", remedy or "remove it", at_key=True)


def _home_of(word: str, path: Path) -> str:
    """Where a key of that name belongs, if that is one place and not here."""
    homes = [section for section in _SECTIONS if section != path[:-1] and word in _keys_of(model_at(section))]
    if len(homes) != 1:
        return ""
    return f"it belongs to `{homes[0][0]}`" if homes[0] else "it belongs to no section: begin the line with it"


def _keys_of(model: type[Settings] | None) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()] if model else []


@dataclass(frozen=True, slots=True)
class Understood:
    """What could be made of the values: see `LoadedPipeline` for the meaning of `broken` and `step_indices`."""

    settings: PipelineSettings
    problems: tuple[PathProblem, ...]
    broken: frozenset[str]
    step_indices: tuple[int, ...]


_PLACEHOLDERS: Mapping[str, Any] = {
    "version": 1,
    "name": "unnamed",
    "kafka": {"bootstrap.servers": "unknown:9092"},
    "checkpoints": {"directory": "/unknown"},
    "sources": {},
    "sinks": {},
}
"""Stand-ins for required parts that are broken, so that the rest can be looked at in the same run."""


MAX_ROUNDS = 100
"""One round finds all that is wrong but for properties, of which it finds one per map."""


def derive_settings(values: dict[str, Value]) -> Understood:
    """Settings of everything that can be understood, and a problem for everything that cannot."""
    empty = [
        PathProblem(path, "the value is missing", "give a value, or remove the key")
        for path in _empty_paths(values, ())
    ]
    known = {problem.path for problem in empty}
    rest, problems, broken_parts = _Rest(values), list(empty), list(empty)
    for _ in range(MAX_ROUNDS):
        settings, found = rest.validate()
        problems += [rest.in_file(problem) for problem in found if problem.at_key or problem.path not in known]
        broken_parts += found
        if settings is not None and not broken_parts:
            return Understood(settings, tuple(problems), frozenset(rest.broken), tuple(rest.indices))
        rest.remove(broken_parts)
        broken_parts = []
    # Too many broken properties to look past: the rest of the file is left for the next run.
    nothing = PipelineSettings.model_validate(_PLACEHOLDERS)
    return Understood(nothing, tuple(problems), frozenset([""]), ())


def _empty_paths(value: Value, path: Path) -> Iterable[Path]:
    if value is None:
        yield path
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _empty_paths(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _empty_paths(item, (*path, index))


class _Rest:
    """The values without their broken parts."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.values: dict[str, Any] = {
            name: dict(part) if isinstance(part, dict) else list(part) if isinstance(part, list) else part
            for name, part in values.items()
        }
        steps = values.get("steps")
        self.indices = list(range(len(steps))) if isinstance(steps, list) else []
        self.broken: set[str] = set()

    def validate(self) -> tuple[PipelineSettings | None, list[PathProblem]]:
        """The settings, or what is wrong."""
        try:
            return PipelineSettings.model_validate(self.values), []
        except ValidationError as error:
            return None, [derive_problem(detail) for detail in error.errors(include_url=False)]

    def in_file(self, problem: PathProblem) -> PathProblem:
        """The problem at its place in the file: steps before it may have been taken out."""
        match problem.path:
            case ("steps", int(index), *below):
                return msgspec.structs.replace(problem, path=("steps", self.indices[index], *below))
        return problem

    def remove(self, problems: Iterable[PathProblem]) -> None:
        """Take out every part that has a problem; note the names of the sources, steps and sinks among them."""
        steps: set[int] = set()
        for problem in problems:
            match problem.path:
                case ("sources" | "sinks" as section, str(name), *_) if isinstance(self.values.get(section), dict):
                    self.values[section].pop(name, None)
                    self.broken.add(name)
                case ("kafka" | "spark" as section, str(name)) if isinstance(self.values.get(section), dict):
                    self.values[section].pop(name, None)
                case ("steps", int(index), *_):
                    steps.add(index)
                case (str(section), *_) if section in self.values:
                    del self.values[section]
                    self.broken |= {""} if section in ("sources", "steps") else set()
        for index in sorted(steps, reverse=True):
            step = self.values["steps"].pop(index)
            del self.indices[index]
            label: object = step.get("name") if isinstance(step, dict) else None
            self.broken.add(label if isinstance(label, str) else "")
        if "steps" not in self.values:
            self.indices = []
        for section, placeholder in _PLACEHOLDERS.items():
            if section not in self.values:
                self.values[section] = placeholder
                self.broken |= {""} if section == "sources" else set()
