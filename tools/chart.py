"""Writes what is generated in the chart: the pipeline's part of its values schema, and its README.

`python -m tools.chart` after a change of values.yaml or of the pipeline file's models; a test compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tidegate.config.load import SECTIONS
from tidegate.config.reference import derive_json_schema

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "helm" / "tidegate"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
VALUES: Final = CHART / "values.yaml"

PREFIX: Final = "settings."
"""Of definitions that come from the pipeline file's own schema."""
MARK: Final = "# -- "
"""Begins the description of the value below it."""
DEFAULT_CHARACTERS_MAX: Final = 60

HEADER: Final = """# Chart tidegate

<!-- Generated from values.yaml: `python -m tools.chart`. Do not edit. -->

One release is one pipeline. [docs/deploy.md](../../docs/deploy.md) describes the tasks and how they were tested;
[docs/pipeline](../../docs/pipeline/README.md) describes the pipeline file, which is the value `pipeline`.

    helm install orders helm/tidegate --namespace streams --set-file pipeline=orders.yaml --values values.yaml

| value | default | meaning |
| --- | --- | --- |
"""


class Value(NamedTuple):
    """One value with a description."""

    path: str
    default: Any
    text: str


def derive_schema(given: Mapping[str, Any], pipeline: Mapping[str, Any]) -> dict[str, Any]:
    """The chart's schema `given`, with `settings` from the schema `pipeline` of a whole file."""
    sections = {name: section for name, section in pipeline["properties"].items() if name in SECTIONS}
    value = {"type": "object", "additionalProperties": False, "properties": sections}
    definitions = {name: one for name, one in given["$defs"].items() if not name.startswith(PREFIX)}
    used: dict[str, Any] = {}
    _collect(sections, pipeline["$defs"], used)
    definitions |= {PREFIX + name: _move(one) for name, one in sorted(used.items())}
    return {**given, "properties": {**given["properties"], "settings": _move(value)}, "$defs": definitions}


def _collect(part: Any, definitions: Mapping[str, Any], used: dict[str, Any]) -> None:
    """Definitions that `part` refers to, and those they refer to."""
    if isinstance(part, Mapping):
        name = part["$ref"].rpartition("/")[2] if isinstance(part.get("$ref"), str) else ""
        if name and name not in used:
            # Nothing is required: the pipeline file may have the rest.
            used[name] = {key: value for key, value in definitions[name].items() if key != "required"}
            _collect(definitions[name], definitions, used)
        for inner in part.values():
            _collect(inner, definitions, used)
    elif isinstance(part, list):
        for inner in part:
            _collect(inner, definitions, used)


def _move(part: Any) -> Any:
    """References lead to the definitions' new names."""
    if isinstance(part, Mapping):
        return {
            key: f"#/$defs/{PREFIX}{value.removeprefix('#/$defs/')}"
            if key == "$ref" and isinstance(value, str)
            else _move(value)
            for key, value in part.items()
        }
    return [_move(one) for one in part] if isinstance(part, list) else part


def read_values(text: str) -> list[Value]:
    """Every described value, in its order."""
    lines = text.splitlines()
    return [
        Value(path, yaml.safe_load(yaml.serialize(node)), described)
        for path, line, node in _walk(yaml.compose(text), ())
        if (described := _described(lines, line))
    ]


def find_undescribed(text: str) -> list[str]:
    """Paths of values that have no description, and are in no value that has one."""
    lines = text.splitlines()
    described = [path for path, line, _ in _walk(yaml.compose(text), ()) if _described(lines, line)]
    return [
        path
        for path, _, node in _walk(yaml.compose(text), ())
        if not (isinstance(node, yaml.MappingNode) and node.value)
        and not any(path == one or path.startswith(one + ".") for one in described)
    ]


def _walk(node: Any, above: tuple[str, ...]) -> Iterator[tuple[str, int, Any]]:
    """Path, line and node of every key."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            path = (*above, key.value)
            yield ".".join(path), key.start_mark.line, value
            yield from _walk(value, path)


def _described(lines: list[str], line: int) -> str:
    above = lines[line - 1].strip() if line else ""
    return above.removeprefix(MARK) if above.startswith(MARK) else ""


def derive_readme(values: list[Value]) -> str:
    """The page of the chart."""
    rows = [f"| `{value.path}` | {_shown(value.default)} | {value.text} |\n" for value in values]
    return HEADER + "".join(rows).replace("||", "\\|\\|")


def _shown(default: Any) -> str:
    text = json.dumps(default)
    return f"`{text}`" if len(text) <= DEFAULT_CHARACTERS_MAX else "see values.yaml"


def find_value_names(template: str) -> set[str]:
    """Paths below `.Values` that a template names."""
    return {found.rstrip(".") for found in re.findall(r"\.Values\.([A-Za-z][A-Za-z0-9.]*)", template)}


def render_schema() -> str:
    """What values.schema.json has to hold."""
    given = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return json.dumps(derive_schema(given, derive_json_schema()), indent=1, ensure_ascii=False) + "\n"


def render_readme() -> str:
    """What README.md has to hold."""
    return derive_readme(read_values(VALUES.read_text(encoding="utf-8")))


def main() -> None:
    """Write both."""
    SCHEMA.write_text(render_schema(), encoding="utf-8")
    README.write_text(render_readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
