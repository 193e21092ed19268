"""The reference of the pipeline file (`docs/pipeline.md`), generated from the models."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import GiveUpLimit, Unaligned, ValueCheck
from tidegate.config.fields.units import render_duration, render_size
from tidegate.config.fields.unknown_fields import Unknown
from tidegate.config.models import (
    PipelineSettings,
)
from tidegate.config.properties import OWNED_KAFKA, OWNED_SPARK, REFUSED_KAFKA
from tidegate.formats.registry import FORMATS
from tidegate.kafka.unusable_properties import UNUSABLE_KAFKA

_HEAD = """\
# The pipeline file

<!-- Generated: `tidegate schema --format markdown > docs/pipeline.md`. Do not edit. -->

One YAML file is one pipeline and all of its settings; one daemon runs one file. `tidegate init` writes a sample (with
`--topic NAME` one that reads an existing topic, with the schema of its records; with `--example NAME` one of the
[cookbook](cookbook.md)). `tidegate validate FILE` checks a file without a broker (with `--connect` against the real
one), `tidegate explain FILE` shows the graph and where each setting came from, and `tidegate schema` prints a JSON
Schema for editors:

```yaml
# yaml-language-server: $schema=tidegate.schema.json
```

- YAML 1.2: `no` and `on` are words, `010` is ten. Unknown and repeated keys are refused.
- Within braces and brackets, a value with a comma or a `${VAR}` needs quotes: `{net: "round(amount, 2)"}`. Quotes
  make it a text: a number, `true` or `false` from a variable has to be outside of braces.
- `${VAR}`, `${VAR:default}` and `${file:/path}` work inside values, after parsing; `$${` is a literal `${`. The
  content of a file is a secret, and so are properties such as `sasl.password`: they are never shown. `${file:...}` is
  only for Kafka and Spark properties, `secrets`, `password` and `token` of the registry, and `headers` of `http`
  steps. Variables are also replaced in expressions: `'${HOME}'` is the text `'/root'`, and `'$${HOME}'` is
  `'${HOME}'`. `tidegate explain` lists the text constants in which a variable was replaced. A group in
  `regexp_replace` is `$1`.
- `TIDEGATE_SITE` names a file with site settings in the same notation that override those of the pipeline file. It
  may have `kafka`, `clusters`, `spark`, `parallelism`, `checkpoints`, `savepoints`, `state`, `restart`, `runtime`,
  `http`, `logging` and `registry` (`tidegate docs deploy`).
- Durations have units: `500ms`, `10s`, `1m30s`, `2h`.
- Names of sources, steps and sinks share one namespace. A step's name is the name of its state: if a step is renamed,
  `was` gives its former name.
- Columns that begin with `__tidegate` belong to Tidegate.
- Types: `boolean tinyint smallint int bigint float double string binary date timestamp
  timestamp_ntz`, `decimal(p,s)`, `array<...>`, `map<key, value>` and `struct<name: type,
  ...>` (in quotes, because of commas and `: `); synonyms `byte short integer long real dec numeric timestamp_ltz`.
- Keys (of `key` and of sinks) are boolean, integers, decimals, strings, binary, dates or timestamps with or without
  zone; with `key_format` a sink accepts more types. Floating-point numbers cannot be compared exactly.
- Several names in `from` are a union. Without `columns` all of them must have the same columns with the same types.
  Rows that arrive on several paths have no order, not even those of one key.
- The key of a sink is the text of its column: `42`, `2026-01-31`; bytes for binary; a NULL is a record without key
  (`key_format` has other forms).
"""


def render_reference() -> str:
    """Renders the whole page."""
    parts = [_HEAD]
    parts += [_section(title, path, model) for title, path, model in derive_sections()]
    parts += [f"## Format `{name}`\n\n{one.page}" for name, one in FORMATS.items()]
    parts.append(_owned("Kafka properties that belong to Tidegate", OWNED_KAFKA))
    parts.append(_owned("Kafka properties that are refused", REFUSED_KAFKA))
    unusable = {
        name: ("the client that ends transactions does not know it", text) for name, text in UNUSABLE_KAFKA.items()
    }
    parts.append(_owned("Kafka properties that cannot be used", unusable))
    parts.append(_owned("Spark properties that belong to Tidegate", OWNED_SPARK))
    return "\n".join(parts)


def derive_sections() -> list[tuple[str, str, type[Settings]]]:
    """Returns title, path and model of every section, depth first, beginning with the file itself."""
    found: dict[type[Settings], tuple[str, str, type[Settings]]] = {}
    _add_sections("", "", PipelineSettings, found)
    return list(found.values())


def _add_sections(
    key: str, path: str, model: type[Settings], found: dict[type[Settings], tuple[str, str, type[Settings]]]
) -> None:
    if model in found:
        return
    found[model] = (model.TITLE or key.replace("_", " ").capitalize(), path, model)
    held = [
        (info.alias or name, suffix, inner)
        for name, info in model.model_fields.items()
        for suffix, inner in _models_in(info.annotation)
    ]
    for own, suffix, inner in held:
        if own == min((name for name, _, other in held if other is inner), key=len):  # `schema` before `key_schema`
            _add_sections(own, f"{path}.{own}{suffix}".lstrip("."), inner, found)


def _models_in(annotation: Any) -> Iterator[tuple[str, type[Settings]]]:
    """Yields the models that a value may be or hold, and how it holds them: `<name>` of a mapping, `[]` of a list."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield "", annotation
    elif origin is typing.Annotated:
        yield from _models_in(arguments[0])
    elif origin is dict:
        yield from ((f".<name>{suffix}", inner) for suffix, inner in _models_in(arguments[1]))
    elif origin is list:
        yield from ((f"[]{suffix}", inner) for suffix, inner in _models_in(arguments[0]))
    elif origin in (typing.Union, types.UnionType):
        for argument in arguments:
            yield from _models_in(argument)


def _section(title: str, path: str, model: type[Settings]) -> str:
    lines = [f"## {title}", "", cleandoc(model.__doc__ or "").split("`LATER`")[0].strip(), ""]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for name, info in model.model_fields.items():
        key = f"{path}.{info.alias or name}".lstrip(".")
        cells = (f"`{key}`", _kind(info), _default(name, info), info.description or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if model.LATER:
        lines += ["", "Not supported yet: " + ", ".join(f"`{word}`" for word in sorted(model.LATER)) + "."]
    return "\n".join(lines) + "\n"


def _kind(info: FieldInfo) -> str:
    check = next((item for item in info.metadata if isinstance(item, ValueCheck)), None)
    if check is None:
        return _shape(info.annotation)
    schema = check.schema
    if check.bounds is not None:
        return " to ".join(check.bounds)
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    words, others = _ways(schema.get("anyOf", ()))
    if words and others == ["object"]:
        return ", ".join([*words, "mapping"])
    if schema.get("type") == "boolean":
        return "`true` or `false`"
    if "maximum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        return f"{low} to {high}" if low < high else f"`{low}`"
    return _shape(info.annotation)


def _ways(ways: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the words that a value may be, and the types of its other forms."""
    words = [f"`{word}`" for way in ways for word in way.get("enum", ())]
    return words, [way.get("type", "") for way in ways if "enum" not in way]


def _shape(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return next(_shape(part) for part in typing.get_args(annotation) if part is not type(None))
    if origin is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
        return _shape(annotation)
    if annotation is Any:
        return "any"
    if origin is tuple:
        return "one or a list"
    if origin is dict or annotation is dict:
        return "mapping"
    if origin is list:
        return "list"
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return "see below"
    return "text"


def _default(name: str, info: FieldInfo) -> str:
    value = info.default
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name.endswith("_ms") and isinstance(value, int):
        return f"`{render_duration(value)}`"
    if name.endswith("_bytes") and isinstance(value, int):
        return f"`{render_size(value)}`"
    if isinstance(value, Unknown):
        return f"`{value}`"
    if isinstance(value, GiveUpLimit):
        return f"`{value.failures} in {render_duration(value.within_ms)}`"
    if value == "":
        return "an empty text"
    return f"`{value}`" if isinstance(value, str | int | Unaligned) else ""


def _owned(title: str, owned: Mapping[str, tuple[str, str]]) -> str:
    lines = [f"## {title}", "", "| property | reason | instead |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {reason} | {remedy} |" for name, (reason, remedy) in sorted(owned.items())]
    return "\n".join(lines) + "\n"
