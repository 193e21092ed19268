"""What is generated from the models: the reference of the pipeline file (`docs/pipeline` and `docs/formats`), and its
JSON Schema for editors.

`python -m tidegate.config.reference` writes the pages.
"""

from __future__ import annotations

import re
import types
import typing
import warnings
from collections.abc import Iterator, Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic.fields import FieldInfo
from pydantic.json_schema import PydanticJsonSchemaWarning
from pydantic_core import PydanticUndefined

from tidegate.config.fields.base import Settings
from tidegate.config.fields.records import Unknown
from tidegate.config.fields.types import GiveUpLimit, Unaligned, ValueCheck
from tidegate.config.fields.units import render_duration, render_size
from tidegate.config.models import PipelineSettings
from tidegate.config.properties import OWNED_KAFKA, OWNED_SPARK, REFUSED_KAFKA, read_kafka_properties
from tidegate.formats.registry import FORMATS
from tidegate.kafka.properties import UNUSABLE_KAFKA

DOCS: Final = Path(__file__).parents[2] / "docs"
_GENERATED: Final = "<!-- Generated: `python -m tidegate.config.reference`. Do not edit. -->\n"
_HEAD: Final = """\
One YAML file is one pipeline with all of its settings, and one daemon runs one file:

```yaml
version: 1
name: orders
kafka: {bootstrap.servers: "localhost:9092"}
checkpoints: {directory: /var/lib/tidegate/orders}
sources:
  orders: {topic: orders, schema: {id: bigint, amount: double}}
steps:
  - {name: large, from: orders, where: amount >= 100}
sinks:
  out: {from: large, topic: large-orders, key: id}
```

`tidegate init` writes a commented sample. With `--topic NAME` the sample reads an existing topic and has the schema of
its records; with `--example NAME` it is one of the [cookbook](../cookbook.md). `tidegate validate FILE` checks a file
without a broker, and with `--connect` against the real one. `tidegate explain FILE` shows the graph and the origin of
each setting. `tidegate schema > tidegate.schema.json` writes a JSON Schema, which editors use if the file begins with

```yaml
# yaml-language-server: $schema=tidegate.schema.json
```

## Notation

- The file is YAML 1.2: `no` and `on` are texts, `010` is ten. Unknown and repeated keys are refused.
- Within braces and brackets, a value with a comma or a `${VAR}` needs quotes: `{net: "round(amount, 2)"}`. Quotes make
  a value a text, so a variable that holds a number, `true` or `false` must be outside of braces.
- `${VAR}`, `${VAR:default}` and `${file:/path}` are replaced inside values, after parsing; `$${` is a literal `${`. The
  content of a file is a secret, and so are properties such as `sasl.password`: they are never shown. `${file:...}` is
  allowed only in Kafka and Spark properties, `secrets`, `password` and `token` of the registry, and `headers` of `http`
  steps. Variables are also replaced in expressions: `'${HOME}'` is the text `'/root'`, and `'$${HOME}'` is `'${HOME}'`.
  `tidegate explain` lists the text constants in which a variable was replaced. A group in `regexp_replace` is `$1`.
- `TIDEGATE_SITE` names a file with site settings in the same notation, which override those of the pipeline file. It
  may have `kafka`, `clusters`, `spark`, `parallelism`, `checkpoints`, `savepoints`, `state`, `restart`, `runtime`,
  `http`, `logging` and `registry` ([deploy](../deploy.md)).
- Durations have units: `500ms`, `10s`, `1m30s`, `2h`.
- Names of sources, steps and sinks share one namespace. A step's name is also the name of its state. If you rename a
  step, set `was` to its former name.
- Columns that begin with `__tidegate` are reserved.
- Types are `boolean tinyint smallint int bigint float double string binary date timestamp timestamp_ntz`,
  `decimal(p,s)`, `array<...>`, `map<key, value>` and `struct<name: type, ...>` (in quotes, because of commas and `: `).
  Synonyms are `byte short integer long real dec numeric timestamp_ltz`.
- Keys (of `key` and of sinks) are boolean, integers, decimals, strings, binary, dates or timestamps with or without
  zone. With `key_format` a sink accepts more types. Floating-point numbers cannot be keys, because they cannot be
  compared exactly.
- Several names in `from` are a union. Without `columns`, all of them must have the same columns with the same types.
  Rows that arrive on several paths have no order, not even those of one key.
- The key of a sink is the text of its column, such as `42` or `2026-01-31`, or bytes for binary. NULL is a record
  without key. `key_format` has other forms.

"""


class Page(NamedTuple):
    """A page of `docs/pipeline` and the keys at the top of the file whose sections it has."""

    name: str
    title: str
    keys: tuple[str, ...]


PAGES: Final = (
    Page("README", "The pipeline file", ("",)),
    Page("sources", "Settings of sources", ("sources",)),
    Page("steps", "Settings of steps", ("steps",)),
    Page("sinks", "Settings of sinks and dead letters", ("sinks", "dead_letters")),
    Page("tests", "Settings of test cases", ("tests",)),
    Page(
        "checkpoints",
        "Settings of checkpoints, savepoints, state and restarts",
        ("checkpoints", "savepoints", "state", "restart"),
    ),
    Page("daemon", "Settings of the daemon", ("runtime", "http", "logging", "registry")),
)
PROPERTIES: Final = Page("properties", "Kafka and Spark properties that are refused", ())


def write_reference(folder: Path = DOCS) -> None:
    """Writes all pages into the folder of the documentation, and removes those that are no longer generated."""
    pages = render_reference()
    for part in ("pipeline", "formats"):
        for old in (folder / part).glob("*.md"):
            if f"{part}/{old.name}" not in pages:
                old.unlink()
    for name, text in pages.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def render_reference() -> dict[str, str]:
    """Renders every page, by its path below `docs`."""
    sections = derive_sections()
    pages = {f"pipeline/{page.name}.md": _render_page(page, sections) for page in PAGES}
    pages[f"pipeline/{PROPERTIES.name}.md"] = _render_properties()
    for name, one in FORMATS.items():
        pages[f"formats/{name}.md"] = f"# Format `{name}`\n\n{_GENERATED}\n{one.page}"
    return pages


def _render_page(page: Page, sections: Sequence[Section]) -> str:
    parts = [f"# {page.title}", _GENERATED]
    if page is PAGES[0]:
        parts += [_HEAD, _render_contents()]
    parts += [_render_section(one, page, sections) for one in sections if find_page(one.path) is page]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _render_contents() -> str:
    lines = ["## Pages", "", "| page | keys |", "| --- | --- |"]
    lines += [
        f"| [{page.title}]({page.name}.md) | {', '.join(f'`{key}`' for key in page.keys)} |" for page in PAGES[1:]
    ]
    lines.append(f"| [{PROPERTIES.title}]({PROPERTIES.name}.md) | `kafka`, `clusters`, `spark` |")
    formats = ", ".join(f"[{name}](../formats/{name}.md)" for name in FORMATS)
    return "\n".join([*lines, "", f"Formats of records: {formats}."])


def find_page(path: str) -> Page:
    """Finds the page that has the section at a path of the file."""
    key = re.split(r"[.\[]", path, maxsplit=1)[0]
    return next(page for page in PAGES if key in page.keys)


def _render_properties() -> str:
    unusable = {
        name: ("the client that ends transactions does not know it", text) for name, text in UNUSABLE_KAFKA.items()
    }
    return "\n".join([
        f"# {PROPERTIES.title}\n\n{_GENERATED}",
        _owned("Kafka properties that belong to Tidegate", OWNED_KAFKA),
        _owned("Kafka properties that are refused", REFUSED_KAFKA),
        _owned("Kafka properties that cannot be used", unusable),
        _owned("Spark properties that belong to Tidegate", OWNED_SPARK),
    ])  # fmt: skip


class Section(NamedTuple):
    """A section of the file: its heading, its path in the file, and its model."""

    title: str
    path: str
    model: type[Settings]


def derive_sections() -> list[Section]:
    """Returns every section, depth first, beginning with the file itself."""
    found: dict[type[Settings], Section] = {}
    _add_sections("", "", PipelineSettings, found)
    return list(found.values())


def _add_sections(key: str, path: str, model: type[Settings], found: dict[type[Settings], Section]) -> None:
    if model in found:
        return
    found[model] = Section(model.TITLE or key.replace("_", " ").capitalize(), path, model)
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


def _render_section(section: Section, page: Page, sections: Sequence[Section]) -> str:
    title, path, model = section
    lines = [f"## {title}", "", cleandoc(model.__doc__ or ""), ""]
    lines += ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for name, info in model.model_fields.items():
        key = f"{path}.{info.alias or name}".lstrip(".")
        cells = (f"`{key}`", _value(info, page, sections), _default(name, info), info.description or "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _value(info: FieldInfo, page: Page, sections: Sequence[Section]) -> str:
    """Returns what kind of value a key has, with links to the sections that describe its parts."""
    models = {inner for _, inner in _models_in(info.annotation)}
    links = [_link(section, page) for section in sections if section.model in models]
    return ", ".join(part for part in (_kind(info), *links) if part)


def _link(section: Section, page: Page) -> str:
    found = find_page(section.path)
    anchor = re.sub(r"[^\w\- ]", "", section.title).lower().replace(" ", "-")
    return f"[{section.title}]({'' if found is page else found.name + '.md'}#{anchor})"


def _kind(info: FieldInfo) -> str:
    check = next((item for item in info.metadata if isinstance(item, ValueCheck)), None)
    if check is None:
        return _shape(info.annotation)
    schema = check.schema
    if check.bounds is not None:
        return " to ".join(check.bounds)
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    choices, others = _ways(schema.get("anyOf", ()))
    if choices and others == ["object"]:
        return ", ".join([*choices, "mapping"])
    if schema.get("type") == "boolean":
        return "`true` or `false`"
    if "maximum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        return f"{low} to {high}" if low < high else f"`{low}`"
    return _shape(info.annotation)


def _ways(ways: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Returns the choices that a value may be, and the types of its other forms."""
    choices = [f"`{choice}`" for way in ways for choice in way.get("enum", ())]
    return choices, [way.get("type", "") for way in ways if "enum" not in way]


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
        return ""  # linked
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


# -- the JSON Schema for editors ---------------------------------------------------------------------------------------

_CONSTRAINTS = ("type", "enum", "pattern", "minimum", "maximum", "maxLength")
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
"""A text that is not the final value: `${NAME}`, `${NAME:default}` or `${file:...}`."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def derive_json_schema() -> dict[str, Any]:
    """Derives the schema, with the keys of the file.

    It describes the form; `tidegate validate` also checks the meaning.
    """
    with warnings.catch_warnings():
        # Defaults of Tidegate's own types (`20 in 30m`) have no JSON form; the reference lists them.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        schema = PipelineSettings.model_json_schema(by_alias=True, mode="validation")
    schema["$schema"] = DIALECT
    schema["title"] = "Tidegate pipeline"
    names = sorted(
        name
        for name, entry in read_kafka_properties().items()
        if name not in OWNED_KAFKA
        and name not in UNUSABLE_KAFKA
        and entry.alias_of not in OWNED_KAFKA
        and entry.type != "see dedicated API"
    )
    for part in (schema, *schema["$defs"].values()):
        if "kafka" in part.get("properties", {}):
            part["properties"]["kafka"]["propertyNames"] = {"enum": names}
        for other in part.get("properties", {}).get("clusters", {}).get("patternProperties", {}).values():
            other["propertyNames"] = {"enum": names}
        for one in part.get("properties", {}).values():
            _without_defaults_in_ms(one)
            _with_variables(one)
    _without_exclusion(schema)
    return schema


def _without_exclusion(part: Any) -> None:
    """Replaces `oneOf` by `anyOf`: `{file: order.avsc}` is a schema's location, but could also be a column."""
    if isinstance(part, dict):
        if "oneOf" in part:
            part["anyOf"] = part.pop("oneOf")
        for inner in part.values():
            _without_exclusion(inner)
    elif isinstance(part, list):
        for inner in part:
            _without_exclusion(inner)


def _without_defaults_in_ms(schema: dict[str, Any]) -> None:
    """Removes defaults of durations: they are in milliseconds, which the file does not accept."""
    if schema.get("type") == "string" and isinstance(schema.get("default"), int):
        del schema["default"]


def _with_variables(schema: dict[str, Any]) -> None:
    """Allows a variable for any number, choice or name, because an editor sees the file before interpolation."""
    inner = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    inner += [schema.get("items"), schema.get("additionalProperties")]
    inner += [*schema.get("properties", {}).values(), *schema.get("patternProperties", {}).values()]
    for part in inner:
        if isinstance(part, dict):
            _with_variables(part)
    if schema.get("type") in ("integer", "boolean") or "enum" in schema or "pattern" in schema:
        plain = {key: schema.pop(key) for key in _CONSTRAINTS if key in schema}
        schema["anyOf"] = [plain, _VARIABLE]


if __name__ == "__main__":
    write_reference()
