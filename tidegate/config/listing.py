"""Every setting of a pipeline with its value and its origin, and the text of its file: both without secrets.

`tidegate explain` and the configuration page show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Final, Literal

from pydantic import SecretStr

from tidegate.config.document import MappingNode, Node, ScalarNode, SequenceNode, derive_tree
from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.records import Idle, Unknown, render_idle
from tidegate.config.fields.secrets import REDACTED, Redactor, is_secret_key
from tidegate.config.fields.types import GiveUpLimit, Unaligned
from tidegate.config.fields.units import render_duration
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import BaseStepSettings, PipelineSettings, StepSettings
from tidegate.datatypes import DataType
from tidegate.operators.registry import choose_step_kind

Origin = Literal["file", "site", "environment", "default"]

_HEADERS: Final = ("http", "headers")
"""Headers of `http` steps: the name of one does not tell whether its value is a secret."""
_REFERENCES: Final = re.compile(r"(?:\$\{(?:file:[^}]*|[A-Za-z_][A-Za-z0-9_]*)\})+", re.ASCII)
"""A value that consists of references without a default. It contains no secret, only the name of one."""
_COMMENT: Final = re.compile(r"(?<!\S)#[^\n]*")
_SETTING: Final = re.compile(r"([\w.-]+)[\"']?[ \t]*[:=][ \t]*(?=\S)")
"""A setting in a comment, up to its value."""


@dataclass(frozen=True, slots=True)
class ListedSetting:
    """A setting for people and programs; `value` consists of plain values and contains no secret."""

    path: Path
    value: Any
    secret: bool = False


def list_settings(loaded: LoadedPipeline, *, steps: bool = False) -> Iterator[ListedSetting]:
    """Yields every setting that has a value, including the derived default of the Spark master.

    Steps are included if `steps` is set, with the settings that their kind has. Tests do not affect the pipeline and
    are left out.
    """
    settings = loaded.settings
    master: Path = ("spark", "master")
    if "master" not in settings.spark:
        yield ListedSetting(master, settings.spark_master)
    for path, value in _leaves(settings, ()):
        yield _list(path, value)
    for index, step in zip(loaded.step_indices, settings.steps if steps else (), strict=False):
        yield from (_list(path, value) for path, value in _leaves(step, ("steps", index)))


def find_origin(loaded: LoadedPipeline, path: Path) -> tuple[Origin, str | None, tuple[str, ...]]:
    """Returns where a value comes from, `file:line` of it, and the variables and secret files that it refers to.

    A value that refers to a variable comes from the environment, wherever the reference is.
    """
    place = loaded.places.get(path)
    if place is None:
        return "default", None, ()
    sources = () if place.interpolated is None else place.interpolated.sources
    at = f"{FilePath(place.value.file or loaded.file).name}:{place.value.line}"
    if any(not source.startswith("file ") for source in sources):
        return "environment", at, sources
    return "site" if place.value.file else "file", at, sources


def hide_secrets(loaded: LoadedPipeline) -> str:
    """Returns the text of the pipeline file without secrets, including those that are commented out or overridden.

    A reference to a variable or to a file is shown, because it is not the secret.
    """
    known = {one.path: one.secret for one in list_settings(loaded, steps=True)}
    tree, _ = derive_tree(loaded.source)
    text = loaded.source
    found = [(path, node) for path, node in _scalars(tree, ()) if _is_secret(path, node, known)]
    for start, end in sorted({(node.mark.index, node.end) for _, node in found}, reverse=True):
        written = text[start:end].rstrip()
        text = f"{text[:start]}{REDACTED}{text[start + len(written) :]}"
    # Values of headers are not searched for elsewhere: many are ordinary words.
    hide = Redactor({*loaded.secrets.values, *(node.text for path, node in found if path[-3:-1] != _HEADERS)})
    return hide(_COMMENT.sub(_hide_commented, text))


def _is_secret(path: Path, node: ScalarNode, known: Mapping[Path, bool]) -> bool:
    secret = known.get(path, is_secret_key(str(path[-1])) if path else False)
    return secret and _REFERENCES.fullmatch(node.text) is None


def _hide_commented(comment: re.Match[str]) -> str:
    """Hides what follows the name of a secret setting in a comment."""
    text = comment[0]
    for setting in _SETTING.finditer(text):
        if is_secret_key(setting[1]) and _REFERENCES.match(text, setting.end()) is None:
            return f"{text[: setting.end()]}{REDACTED}"
    return text


def _scalars(node: Node | None, path: Path) -> Iterator[tuple[Path, ScalarNode]]:
    match node:
        case ScalarNode():
            yield path, node
        case SequenceNode():
            for index, item in enumerate(node.items):
                yield from _scalars(item, (*path, index))
        case MappingNode():
            for key, value in node.entries:
                yield from _scalars(value, (*path, key.text))


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    """Yields every value at or below a path."""
    if isinstance(value, Settings):
        own = _keys_of(value)
        for name, info in type(value).model_fields.items():
            item = getattr(value, name)
            if item is not None and (own is None or name in own):
                yield from _leaves(_timed(name, item), (*path, info.alias or name))
    elif isinstance(value, Mapping) and path[-1:] != ("start",):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    elif isinstance(value, list | tuple) and any(isinstance(item, Settings) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _keys_of(section: Settings) -> set[str] | None:
    """Returns the keys that apply: all (None), or of a step those of its kind."""
    if isinstance(section, PipelineSettings):
        return set(type(section).model_fields) - {"steps", "tests"}
    if isinstance(section, StepSettings):
        return choose_step_kind(section).settings.model_fields.keys() | BaseStepSettings.model_fields.keys()
    return None


def _timed(name: str, value: object) -> object:
    return render_duration(value) if name.endswith("_ms") and isinstance(value, int) else value


def _list(path: Path, value: object) -> ListedSetting:
    if isinstance(value, SecretStr) or path[-3:-1] == _HEADERS:
        return ListedSetting(path, REDACTED, secret=True)
    return ListedSetting(path, _shown(value))


def _shown(value: object) -> Any:
    match value:
        case GiveUpLimit():
            return f"{value.failures} in {render_duration(value.within_ms)}"
        case Idle():
            return render_idle(value)
        case DataType() | Unaligned() | Unknown():
            return str(value)
        case tuple():
            return list(value)
        case Mapping():
            return {str(name): item for name, item in value.items()}
    return value


def render_value(value: object) -> str:
    """Renders the value of a setting as text, as the file would have it."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {item}' for name, item in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)
