"""Loads a pipeline file: settings with the position and origin of every value. Reads all files of this package."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from pydantic import SecretStr

from tidegate.config.checks import derive_problems
from tidegate.config.document import (
    MAX_FILE_BYTES,
    DocumentBroken,
    MappingNode,
    Node,
    ScalarNode,
    TextProblem,
    YamlPosition,
    derive_tree,
)
from tidegate.config.errors import ConfigErrors, PathProblem, Problem
from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.secrets import Redactor
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.models import PipelineSettings
from tidegate.config.translate import derive_settings
from tidegate.config.values import MAX_SECRET_BYTES, Value, ValueOrigin, ValueReader, derive_place_inside
from tidegate.formats.schemas import SchemaText
from tidegate.storage.open import Opener, StorageOpener, open_storage
from tidegate.user_code.describe import UserCode

_NAME_SHOWN: Final = 60
Section = Literal["name", "kafka", "clusters", "checkpoints", "savepoints", "runtime", "http", "dead_letters"]
"""The sections used by commands for a pipeline that runs or has run."""


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """The settings of one file, and where each came from.

    `problems` is empty unless the pipeline was read with `read_pipeline`. Then `settings` holds what could be
    understood, and `broken` the names of sources and steps that could not.
    """

    file: str
    settings: PipelineSettings
    places: Mapping[Path, ValueOrigin]
    source: str
    secrets: Redactor
    values: Value = None
    problems: tuple[Problem, ...] = ()
    broken: frozenset[str] = field(default_factory=frozenset)
    step_indices: tuple[int, ...] = ()
    """Positions of `settings.steps` in the file's list, since broken steps are omitted from the settings."""
    schemas: Mapping[Path, SchemaText] = field(default_factory=dict)
    """Schemas from files and the registry that could be read, by the path of the `schema` that names them."""
    code: UserCode | None = None
    """The user code that steps name; None before it is resolved (`checks/pipeline_file.py`)."""
    sections: tuple[tuple[str, Problem], ...] = ()
    """Problems that `read_pipeline` has found, with the top-level key that they concern; empty: the whole file."""

    def place(self, path: Path) -> ValueOrigin:
        """Returns the origin of a path, or of its nearest part that is in the file."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]

    def position(self, path: Path) -> tuple[int, int]:
        """Returns line and column (from 1) of a value, or of the nearest part of its path that is in the file."""
        mark = self.place(path).value
        return mark.line, mark.column

    def origin(self, path: Path) -> str:
        """Returns `file line 7`, with the variables that were used, or `default`."""
        place = self.places.get(path)
        if place is None:
            return "default"
        sources = () if place.interpolated is None else place.interpolated.sources
        used = f" ({', '.join(sources)})" if sources else ""
        return f"{'site' if place.value.file else 'file'} line {place.value.line}{used}"

    def display(self, path: Path) -> str:
        """Renders a path for people: `steps.big.where`, with list items by name."""
        return _display(path, self.values)

    def problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> Problem:
        """Returns a problem at a path, without the index of a list that the file writes as a single value."""
        while path and isinstance(path[-1], int) and path not in self.places:
            path = path[:-1]
        return self._problem(path, _mark(self.places, path, at_key), message, remedy)

    def problem_inside(self, path: Path, text: str, line: int, column: int, message: str, remedy: str) -> Problem:
        """Returns a problem at a position (from 1) inside a text value."""
        place = self.place(path)
        if place.value.file:
            return self._problem(path, place.value, message, remedy)
        found = derive_place_inside(self.source, place, text, line, column)
        return self._problem(path, YamlPosition(*found, 0), message, remedy)

    def _problem(self, path: Path, mark: YamlPosition, message: str, remedy: str) -> Problem:
        shown = (self.display(path), self.secrets(message), self.secrets(remedy))
        return Problem(mark.file or self.file, mark.line, mark.column, *shown)


def read_pipeline(path: FilePath, environ: Mapping[str, str]) -> LoadedPipeline:
    """Reads the settings of a pipeline file and its `problems`. Raises ConfigErrors if it cannot be read at all.

    `tidegate.plan.build` checks expressions and the graph.
    """
    return parse_pipeline(_read_text(path), str(path), environ)


def read_sections(path: FilePath, environ: Mapping[str, str], *sections: Section) -> PipelineSettings:
    """Reads a pipeline file of which only these sections are used; the others may be placeholders.

    Raises ConfigErrors for problems in these sections and for those that cannot be attributed to others: unknown
    sections and the version.
    """
    loaded = read_pipeline(path, environ)
    elsewhere = {info.alias or name for name, info in PipelineSettings.model_fields.items()} - {"version", *sections}
    problems = [problem for section, problem in loaded.sections if section not in elsewhere]
    if problems:
        raise ConfigErrors(problems)
    return loaded.settings


def parse_pipeline(source: str, file: str, environ: Mapping[str, str]) -> LoadedPipeline:
    """Parses the settings of a text, overridden by the site file. Raises ConfigErrors only if YAML cannot be read."""
    reader = ValueReader(environ, _read_secret)
    site = _read_site(environ.get(VARIABLE, ""))
    try:
        tree, in_text = derive_tree(source)
        root = _root(tree)
        if site is not None:
            root, wrong = lay_over(root, site)
            in_text += wrong
        values = reader.read_mapping(root)
    except DocumentBroken as error:
        raise ConfigErrors([_text_problem(file, "", error.problem)]) from error
    found = [(problem.section, _text_problem(file, "", problem)) for problem in in_text]
    found += [(str(path[0]), _text_problem(file, _display(path, values), one)) for path, one in reader.problems]
    understood = derive_settings(values)
    settings, indices = understood.settings, understood.step_indices
    redactor = Redactor(_secrets(settings))
    loaded = LoadedPipeline(file, settings, reader.places, source, redactor, values, (), understood.broken, indices)
    at_paths = (*understood.problems, *derive_problems(understood, values))
    found += [
        (one.section, _at_path(loaded, one)) for one in at_paths if one.at_key or one.path not in reader.unresolved
    ]
    return replace(loaded, problems=tuple(sorted({problem for _, problem in found})), sections=tuple(found))


def _read_site(file: str) -> MappingNode | None:
    """Reads the site file; None if there is none. Raises ConfigErrors."""
    if not file:
        return None
    text = _read_text(FilePath(file), VARIABLE)
    try:
        tree, problems = derive_tree(text, file)
        root = _root(tree, f"write site settings, or unset {VARIABLE}")
    except DocumentBroken as error:
        raise ConfigErrors([_text_problem(file, VARIABLE, error.problem)]) from error
    if problems:
        raise ConfigErrors([_text_problem(file, VARIABLE, problem) for problem in problems])
    return root


def _at_path(loaded: LoadedPipeline, problem: PathProblem) -> Problem:
    node = loaded.place(problem.path).node
    if problem.column and isinstance(node, ScalarNode):
        return loaded.problem_inside(problem.path, node.text, 1, problem.column, problem.message, problem.remedy)
    return loaded.problem(problem.path, problem.message, problem.remedy, at_key=problem.at_key)


def _root(tree: Node | None, remedy: str = "`tidegate init` writes a sample") -> MappingNode:
    if isinstance(tree, MappingNode):
        return tree
    if tree is not None and not (isinstance(tree, ScalarNode) and not tree.text):
        what = "a text" if isinstance(tree, ScalarNode) else "a list"
        raise DocumentBroken(TextProblem(tree.mark, f"expected a mapping, got {what}", remedy))
    mark = tree.mark if tree else YamlPosition(1, 1, 0)
    raise DocumentBroken(TextProblem(mark, "the file has no settings", remedy))


def _secrets(settings: PipelineSettings) -> set[str]:
    maps: list[Mapping[Any, object]] = [settings.kafka, *settings.clusters.values(), settings.spark]
    maps += [source.kafka for source in settings.sources.values()]
    maps += [sink.kafka for sink in settings.sinks.values()]
    maps += [properties for step in settings.steps for properties in _properties_of(step)]
    maps += [dict(settings.registry)] if settings.registry is not None else []
    maps += [settings.secrets]
    return {value.get_secret_value() for each in maps for value in each.values() if isinstance(value, SecretStr)}


def _properties_of(section: Settings) -> Iterator[Mapping[object, object]]:
    """Yields all mappings in a section and below it; every secret is in one of them."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Settings):
            yield from _properties_of(value)
        elif isinstance(value, Mapping):
            yield value


def _mark(places: Mapping[Path, ValueOrigin], path: Path, at_key: bool) -> YamlPosition:
    """Returns the position of a path's value or key, or of its nearest part that is in the file."""
    while path not in places:
        path, at_key = path[:-1], True
    place = places[path]
    return place.key if at_key and place.key is not None else place.value


def _display(path: Path, values: Value) -> str:
    parts: list[str] = []
    below: Value = values
    for step in path:
        if isinstance(step, int) and isinstance(below, list) and step < len(below):
            below = below[step]
            name = below.get("name") if isinstance(below, dict) else None
            parts.append(name if isinstance(name, str) else str(step))
        else:
            below = below.get(str(step)) if isinstance(below, dict) else None
            parts.append(str(step))
    return ".".join(part if len(part) <= _NAME_SHOWN else f"{part[:_NAME_SHOWN]}..." for part in parts)


def _text_problem(file: str, path: str, problem: TextProblem) -> Problem:
    mark = problem.mark
    return Problem(mark.file or file, mark.line, mark.column, path, problem.message, problem.remedy)


def _read_text(path: FilePath, named_by: str = "") -> str:
    def refused(message: str, remedy: str, line: int = 1, column: int = 1) -> ConfigErrors:
        return ConfigErrors([Problem(str(path), line, column, named_by, message, remedy)])

    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror or error}", "check the path and the permissions") from error
    if len(data) > MAX_FILE_BYTES:
        raise refused(f"is larger than {MAX_FILE_BYTES >> 20} MiB", "a pipeline file is a page or two")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise refused("is not UTF-8 text", "save the file as UTF-8", line, column) from error
    return text.replace("\r\n", "\n")


def _read_secret(path: str) -> str:
    with FilePath(path).open("rb") as stream:
        data = stream.read(MAX_SECRET_BYTES + 1)
    if len(data) > MAX_SECRET_BYTES:
        raise ValueError(f"it is larger than {MAX_SECRET_BYTES >> 10} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8 text") from error


# -- the site file -----------------------------------------------------------------------------------------------------
# A pipeline file defines what happens to records, and is the same everywhere. Brokers, checkpoints and executors differ
# between sites; the site file sets them under the same keys and takes precedence (ADR 57).

VARIABLE: Final = "TIDEGATE_SITE"
SECTIONS: Final = frozenset(
    {
        *("kafka", "clusters", "spark", "parallelism", "checkpoints", "savepoints", "state", "restart", "runtime"),
        *("http", "logging", "registry"),
    }
)
"""The sections that a site file may have. None of them affects what happens to records."""


def lay_over(tree: MappingNode, site: MappingNode) -> tuple[MappingNode, list[TextProblem]]:
    """Overrides `tree` with the settings of `site`, whose positions name its file; also returns problems of `site`."""
    problems = [
        TextProblem(
            key.mark,
            f"`{key.text[:100]}` is not allowed in a site file ({VARIABLE})",
            derive_suggestion(key.text, SECTIONS, otherwise="settings that affect records belong in the pipeline file"),
        )
        for key, _ in site.entries
        if key.text not in SECTIONS
    ]
    own = MappingNode(site.mark, [(key, value) for key, value in site.entries if key.text in SECTIONS])
    return _merged(tree, own), problems


def _merged(below: Node, above: Node) -> MappingNode:
    """Merges two mappings; of any other two values, that of the site counts."""
    assert isinstance(below, MappingNode)
    assert isinstance(above, MappingNode)
    over = {key.text: (key, value) for key, value in above.entries}
    entries = []
    for key, value in below.entries:
        found = over.pop(key.text, None)
        if found is None:
            entries.append((key, value))
        elif isinstance(value, MappingNode) and isinstance(found[1], MappingNode):
            entries.append((key, _merged(value, found[1])))
        else:
            entries.append(found)
    return MappingNode(below.mark, [*entries, *over.values()])


# -- storage -----------------------------------------------------------------------------------------------------------


def derive_opener(settings: PipelineSettings) -> Opener:
    """Returns the opener for the checkpoint directory and other addresses of the same kind."""
    return Opener(str(settings.checkpoints.directory), settings.checkpoints.storage.options)


def opener_of_file(file: FilePath | None) -> StorageOpener:
    """Returns the opener that the pipeline file sets, or without a file the environment. Raises ConfigErrors."""
    return open_storage if file is None else derive_opener(read_sections(file, os.environ, "checkpoints"))
