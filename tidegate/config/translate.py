"""Validates values into settings, and translates pydantic's errors into problems in terms of the pipeline file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tidegate.config.cases import ORDERED, UNORDERED
from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.records import TOPIC_CHOICE, TOPIC_NAME
from tidegate.config.fields.schemas import COLUMNS, NAMED
from tidegate.config.fields.steps import ALL_COLUMNS, NEW_COLUMNS
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import CONFIG, describe_value
from tidegate.config.models import PipelineSettings, SinkSettings, SourceSettings, StepSettings
from tidegate.config.properties import read_kafka_properties
from tidegate.config.values import Value

_FORMS = frozenset([ORDERED, UNORDERED, COLUMNS, NAMED, NEW_COLUMNS, ALL_COLUMNS, TOPIC_NAME, TOPIC_CHOICE])
"""Steps of an error location that identify the form of a value and do not occur in the file."""
_SECTIONS: tuple[Path, ...] = (
    (),
    ("checkpoints",),
    ("state",),
    ("restart",),
    ("runtime",),
    ("http",),
    ("logging",),
    ("registry",),
)

_NAMES = ("Kafka", "Spark")
_KEYS_SHOWN = 3
_EXAMPLE = re.compile(r"`(\{[^`]*\})`")
_PARTS: Mapping[str, type[Settings]] = {"a source": SourceSettings, "a step": StepSettings, "a sink": SinkSettings}


def derive_problem(error: ErrorDetails) -> PathProblem:
    """Translates one error of pydantic."""
    path: Path = tuple(step for step in error["loc"] if step not in _FORMS)
    at_key = bool(path) and path[-1] == "[key]"
    if at_key:
        path = path[:-1]
    context: dict[str, Any] = error.get("ctx") or {}
    kind = error["type"]
    if kind == CONFIG:
        below = (context["at"],) if context["at"] else ()
        return PathProblem(path + below, context["message"], context["remedy"], at_key, context["column"])
    if kind == "missing":
        key = str(path[-1])
        return PathProblem(path[:-1], f"`{key}` is missing", _missing_remedy(path), at_key=True, missing=key)
    if kind == "extra_forbidden":
        return _unknown_key(path)
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return PathProblem(path, f"expected a mapping, got {describe_value(error['input'])}", _mapping_remedy(path))
    if kind == "list_type":
        return PathProblem(path, f"expected a list, got {describe_value(error['input'])}", "begin each item with `-`")
    if kind == "too_short":
        return PathProblem(path, "is empty", "name at least one")
    if kind == "too_long":
        return PathProblem(path, f"has more than {context.get('max_length')} items", "split the pipeline")
    return PathProblem(path, error["msg"], "see `tidegate schema`")


def _mapping_remedy(path: Path) -> str:
    """Returns what to write instead: the example of the key's description, or the keys of the section that it requires,
    or all of them if these are few.
    """
    parent, model = _model_at(path[:-1]), _model_at(path)
    key = next((info for name, info in _fields(parent).items() if name == path[-1]), None)
    example = _EXAMPLE.search((key and key.description) or "")
    if example:
        return f"write {example[1]}"
    fields = _fields(model)
    shown = [name for name, info in fields.items() if info.is_required()]
    shown = shown or ([*fields] if len(fields) <= _KEYS_SHOWN else [])
    return f"write {{{', '.join(f'{name}: ...' for name in shown)}}}" if shown else "write `name: value` lines"


def _fields(model: type[Settings] | None) -> Mapping[str, FieldInfo]:
    """Returns the fields of a section by key."""
    return {info.alias or name: info for name, info in model.model_fields.items()} if model else {}


def _missing_remedy(path: Path) -> str:
    for name, info in _fields(_model_at(path[:-1])).items():
        if name == path[-1] and info.description:
            first, _, rest = info.description.rstrip(".").partition(" ")
            return f"add it: {first if first in _NAMES else first.lower()} {rest}"
    return "add it"


def _unknown_key(path: Path) -> PathProblem:
    model = _model_at(path[:-1])
    key = str(path[-1])
    if "${" in key:
        return PathProblem(path, "unknown key", "variables are replaced in values, not in keys", at_key=True)
    suggestion = derive_suggestion(key, _keys_of(model))
    remedy = _inside(model, key) or _home_of(key, path) or suggestion
    return PathProblem(path, "unknown key", remedy or "remove it", at_key=True)


def _inside(model: type[Settings] | None, key: str) -> str:
    """Returns what to write instead of a key, according to the section or one of its bases."""
    bases = model.__mro__ if model is not None else ()
    return next((hints[key] for base in bases if key in (hints := vars(base).get("INSIDE", {}))), "")


def _home_of(key: str, path: Path) -> str:
    """Returns where a key of that name belongs, if that is known and somewhere else."""
    here = path[:-1]
    if key in _keys_of(PipelineSettings):
        return "it belongs to no section: begin the line with it" if here else ""
    if here not in _SECTIONS:
        return ""
    homes = [section for section in _SECTIONS if section != here and key in _keys_of(_model_at(section))]
    if len(homes) == 1:
        return f"it belongs to `{homes[0][0]}`"
    if homes or here:
        return ""
    if key in read_kafka_properties():
        return "it belongs to `kafka`: indent it"
    parts = [part for part, model in _PARTS.items() if key in _keys_of(model)]
    return f"it belongs to {' or '.join(parts)}: indent it" if parts else ""


def _keys_of(model: type[Settings] | None) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()] if model else []


@dataclass(frozen=True, slots=True)
class Understood:
    """The settings that could be derived from the values; `broken` and `step_indices` are as in `LoadedPipeline`.

    `case_indices` are those of the cases in `tests`.
    """

    settings: PipelineSettings
    problems: tuple[PathProblem, ...]
    broken: frozenset[str]
    step_indices: tuple[int, ...]
    case_indices: tuple[int, ...]


_PLACEHOLDERS: Mapping[str, Any] = {
    "version": 1,
    "name": "unnamed",
    "kafka": {"bootstrap.servers": "unknown:9092"},
    "checkpoints": {"directory": "/unknown"},
    "sources": {},
    "sinks": {},
}
"""Placeholders for required parts that are broken, so that the rest can be checked in the same run."""

LISTS = ("steps", "tests")
"""Sections that are lists, from which only a broken item is removed."""

MAX_ROUNDS = 100
"""One round finds all problems except those of properties, of which it finds one per map."""


def derive_settings(values: dict[str, Value]) -> Understood:
    """Derives settings from everything that can be understood, and a problem for everything that cannot."""
    empty = [PathProblem(path, "the value is missing", _empty_remedy(path)) for path in _empty_paths(values, ())]
    known = {problem.path for problem in empty}
    rest, problems, broken_parts = _Rest(values), list(empty), list(empty)
    for _ in range(MAX_ROUNDS):
        settings, found = rest.validate()
        problems += [rest.in_file(problem) for problem in found if problem.at_key or problem.path not in known]
        broken_parts += found
        if settings is not None and not broken_parts:
            steps, cases = (tuple(rest.indices[section]) for section in LISTS)
            return Understood(settings, tuple(problems), frozenset(rest.broken), steps, cases)
        rest.remove(broken_parts)
        broken_parts = []
    # There are too many broken properties: the rest of the file is left for the next run.
    problems.append(
        PathProblem((), "there are too many problems to report all of them", "correct these first, and validate again")
    )
    nothing = PipelineSettings.model_validate(_PLACEHOLDERS)
    return Understood(nothing, tuple(problems), frozenset([""]), (), ())


def _empty_remedy(path: Path) -> str:
    match path:
        case ("steps", int(), "select", str()) | ("steps", int(), "select", "add", str()):
            return 'give an expression, or remove the key; a NULL needs a type: "cast(null as string)"'
        case ("steps", int(), "http", "missing"):
            return 'write "null" in quotes, or remove the key: it is the default'
        case ("steps", int(), "missing"):
            return 'write "null" in quotes, or remove the key'
    return "give a value, or remove the key"


def _empty_paths(value: Value, path: Path) -> Iterable[Path]:
    if path[:1] == ("tests",) and len(path) > 1:
        return  # a record may have no key, no value, and fields that are null
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
        self.indices: dict[str, list[int]] = {}
        for section in LISTS:
            items = values.get(section)
            self.indices[section] = list(range(len(items))) if isinstance(items, list) else []
        self.broken: set[str] = set()

    def validate(self) -> tuple[PipelineSettings | None, list[PathProblem]]:
        """Returns the settings, or the problems."""
        try:
            return PipelineSettings.model_validate(self.values), []
        except ValidationError as error:
            return None, [derive_problem(detail) for detail in error.errors(include_url=False)]

    def in_file(self, problem: PathProblem) -> PathProblem:
        """Returns the problem with its position in the file, since preceding items may have been removed."""
        match problem.path:
            case (str(section), int(index), *below) if section in LISTS:
                return msgspec.structs.replace(problem, path=(section, self.indices[section][index], *below))
        return problem

    def remove(self, problems: Iterable[PathProblem]) -> None:
        """Removes every part that has a problem, and records the names of sources, steps and sinks among them."""
        items: dict[str, set[int]] = {section: set() for section in LISTS}
        for problem in problems:
            match problem.path:
                case ("sources" | "sinks" as section, str(name), *_) if isinstance(self.values.get(section), dict):
                    self.values[section].pop(name, None)
                    self.broken.add(name)
                case ("kafka" | "spark" as section, str(name)) if isinstance(self.values.get(section), dict):
                    self.values[section].pop(name, None)
                case ("clusters", str(name), *below) if isinstance(self.values.get("clusters"), dict):
                    self._remove_cluster(name, below)
                case (str(section), int(index), *_) if section in LISTS:
                    items[section].add(index)
                case (str(section), *_) if section in self.values:
                    del self.values[section]
                    self.broken |= {""} if section in ("sources", "steps") else set()
        for section in LISTS:
            for index in sorted(items[section], reverse=True):
                self._remove_item(section, index)
            if section not in self.values:
                self.indices[section] = []
        for section, placeholder in _PLACEHOLDERS.items():
            if section not in self.values:
                self.values[section] = placeholder
                self.broken |= {""} if section == "sources" else set()

    def _remove_cluster(self, name: str, below: list[str | int]) -> None:
        """Removes a property of a cluster, or the cluster."""
        clusters = self.values["clusters"]
        found = clusters.pop(name, None)
        if below and isinstance(found, dict):
            clusters[name] = {key: value for key, value in found.items() if key != below[0]}

    def _remove_item(self, section: str, index: int) -> None:
        item = self.values[section].pop(index)
        del self.indices[section][index]
        if section == "steps":
            label: object = item.get("name") if isinstance(item, dict) else None
            self.broken.add(label if isinstance(label, str) else "")


def _model_at(path: Path) -> type[Settings] | None:
    """Returns the section at a path of the file; None if there is no fixed section."""
    ways: list[Any] = [PipelineSettings]
    for step in path:
        ways = [way for below in _below(ways, step) for way in _alternatives(below)]
    return next((way for way in ways if _is_section(way)), None)


def _below(ways: Iterable[Any], step: str | int) -> Iterator[Any]:
    """Yields the types that a value may have at a key or index below one of these types."""
    for way in ways:
        if _is_section(way):
            yield from (info.annotation for name, info in _fields(way).items() if name == step)
        elif get_origin(way) is dict:
            yield get_args(way)[1]
        elif get_origin(way) is list and isinstance(step, int):
            yield get_args(way)[0]


def _alternatives(annotation: Any) -> Iterator[Any]:
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for way in get_args(annotation):
            yield from _alternatives(way)
    else:
        yield annotation


def _is_section(way: Any) -> bool:
    return isinstance(way, type) and issubclass(way, Settings)
