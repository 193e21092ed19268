"""The commented pipeline file that `tidegate init --topic` writes of a topic that exists. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from tidegate.config.fields.secrets import is_secret_key
from tidegate.config.fields.types import MAX_NAME_LENGTH
from tidegate.datatypes import DataType
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_YAML_WORDS: Final = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WIDTH: Final = 38
"""Comments begin here."""


class DraftColumn(msgspec.Struct, frozen=True):
    """A column, or, without a type, a field that is none; then `note` says why."""

    name: str
    type: DataType | None
    note: str = ""


class DeletedRows(msgspec.Struct, frozen=True):
    """The field that says of flattened rows of a table which are deleted, and the condition."""

    column: str
    condition: str
    repeated: bool
    """Whether a record without value may follow that deletes the row again."""


class Draft(msgspec.Struct, frozen=True):
    """What is known of the pipeline. `kafka` are properties as they were written, variables included."""

    topic: str
    kafka: Mapping[str, str]
    folder: str
    """Absolute; checkpoints are kept below it."""
    columns: Sequence[DraftColumn]
    """Empty for a topic that is not JSON."""
    remarks: Sequence[str]
    """About the records that were looked at."""
    format: str = "json"
    """Of the source; raw without columns."""
    decimals: str = ""
    """What the source says in `written_as` of texts in columns of decimals; empty: nothing."""
    key: str = ""
    """The column that rows are deleted by, where they are changes of a table."""
    deleted: DeletedRows | None = None
    """How deleted rows are recognized, where rows of a table were flattened; with a `key`."""


def render_type(kind: DataType) -> str:
    """A type as the schema of a source takes it: names of fields in backticks where they need them."""
    if kind.element is not None:
        return f"array<{render_type(kind.element)}>"
    if kind.fields:
        fields = (f"{name if _FIELD.fullmatch(name) else f'`{name}`'}: {render_type(one)}" for name, one in kind.fields)
        return f"struct<{', '.join(fields)}>"
    return str(kind) if kind.kind == "decimal" else kind.kind


def withheld_secrets(kafka: Mapping[str, str]) -> dict[str, str]:
    """Variables in place of secrets that were written out, by property: a file is no place for them."""
    return {
        name: "KAFKA_" + re.sub(r"[^A-Z0-9]+", "_", name.upper())
        for name, text in kafka.items()
        if is_secret_key(name) and "${" not in text
    }


def render_draft(draft: Draft) -> str:
    """The file, ready for `tidegate validate`."""
    name, source = _pipeline_name(draft.topic), _source_name(draft.topic)
    output, dead = f"{draft.topic[:240]}-out", f"{draft.topic[:240]}-dead"
    lines = [
        f"# Made by `tidegate init --topic {draft.topic}`. Next: `tidegate validate FILE`, `tidegate explain FILE`,",
        f"# `tidegate topic create {output}`, `tidegate topic create {dead}`, `tidegate run FILE`.",
        "# `tidegate docs pipeline` has every setting.",
        "version: 1",
        _line(f"name: {_text(name)}", "in metrics, transactional ids and state: never change it"),
        "",
        _line("kafka:", "librdkafka properties for every source and sink"),
        *_kafka(draft.kafka),
        "",
        _line("parallelism: 2", "slots: Spark tasks that run the whole graph each"),
        "",
        "checkpoints:",
        _line(f"  directory: {_text(_directory(draft.folder, name))}", "durable, and seen by daemon and executors"),
        _line("  interval: 1s", "output becomes visible once per interval"),
        "",
        _line("# http: {port: 9095}", "/metrics, probes, /status; a port of its own for each pipeline"),
        "",
        "sources:",
        f"  {_text(source)}:",
        f"    topic: {_text(draft.topic)}",
        *_source(draft),
        _line("    start: earliest", "or latest, or 2026-11-01T00:00:00Z"),
        _line("    bad_records: dead-letter", "or fail: stop; or skip: leave them out; all are counted"),
        "",
        *_steps(draft, source),
        "sinks:",
        *_sink(draft, source, output),
        "",
        "dead_letters:",
        _line(f"  topic: {_text(dead)}", "it must exist; `tidegate dead-letters list FILE` shows what is there"),
    ]
    return "\n".join(lines) + "\n"


def _line(text: str, comment: str) -> str:
    return f"{text:<{_WIDTH}}# {comment}" if len(text) < _WIDTH else f"{text}  # {comment}"


def _text(value: str) -> str:
    """A YAML scalar: in quotes when it is anything but a word."""
    if _PLAIN.fullmatch(value) and value.lower() not in _YAML_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def _pipeline_name(topic: str) -> str:
    return topic.lstrip("._-")[:MAX_NAME_LENGTH] or "pipeline"


def _source_name(topic: str) -> str:
    word = topic.replace(".", "_").lstrip("_-")[:MAX_NAME_LENGTH]
    return word if word[:1].isalpha() and word != DEAD_LETTERS else "records"


def _directory(folder: str, name: str) -> str:
    return f"file://{quote(folder.rstrip('/'))}/checkpoints/{quote(name)}".replace("${", "$${")


def _kafka(kafka: Mapping[str, str]) -> Iterable[str]:
    withheld = withheld_secrets(kafka)
    for name, text in kafka.items():
        if name in withheld:
            yield _line(f'  {name}: "${{{withheld[name]}}}"', "set this variable, or write ${file:/path}")
        else:
            yield f"  {name}: {_text(text)}"


def _source(draft: Draft) -> Iterable[str]:
    yield f"    format: {draft.format if draft.columns else 'raw'}"
    for remark in draft.remarks:
        yield f"    # {_one_line(remark)}"
    if draft.columns:
        yield _line("    schema:", "other fields of the records are skipped")
    for column in draft.columns:
        if column.type is None:
            yield f"      # {_one_line(column.name)}: left out: {_one_line(column.note)}"
            continue
        text = f"      {_text(column.name)}: {_type(column.type)}"
        yield _line(text, column.note) if column.note else text
    if draft.deleted is not None and draft.deleted.repeated:
        yield _line("    on_null: skip", "a tombstone repeats the deleted row before it")
    if draft.decimals:
        yield _line(f"    written_as: {{decimals: {draft.decimals}}}", "what texts in columns of decimals are")


def _type(kind: DataType) -> str:
    text = render_type(kind)
    return _quoted(text) if kind.fields or "struct" in text else text


def _quoted(text: str) -> str:
    """For texts with backticks: `$` begins no variable there that anybody meant."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False)


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _steps(draft: Draft, source: str) -> Iterable[str]:
    first = next((column.name for column in draft.columns if column.type is not None), None)
    if first is None or (draft.key and draft.deleted is None):
        return
    yield _line("steps:", "expressions are Spark SQL")
    yield f"  - name: {_step_name(source)}"
    yield f"    from: {_text(source)}"
    if draft.deleted is not None:
        yield _line("    select:", "all columns, and which rows are deleted")
        yield '      "*": all'
        yield f"      except: [{draft.deleted.column}]"
        yield f"      add: {{{_flag(draft)}: {_quoted(draft.deleted.condition)}}}"
        yield ""
        return
    condition = f"`{first}` IS NOT NULL" if draft.format == "json" else "NOT _deleted"
    yield _line(f"    where: {_quoted(condition)}", "a place to start from: keep, compute, aggregate")
    yield ""


def _flag(draft: Draft) -> str:
    """The column that says whether a row is deleted."""
    name, taken = "_deleted", {column.name for column in draft.columns}
    while name in taken:
        name = f"_{name}"
    return name


def _step_name(source: str) -> str:
    return "kept" if source != "kept" else "filtered"


def _sink(draft: Draft, source: str, output: str) -> Iterable[str]:
    first = next((column.name for column in draft.columns if column.type is not None), None)
    yield "  out:" if "out" not in (source, _step_name(source)) else "  output:"
    direct = first is None or (draft.key and draft.deleted is None)
    yield f"    from: {_text(source if direct else _step_name(source))}"
    yield _line(f"    topic: {_text(output)}", "it must exist")
    yield f"    format: {'raw' if first is None else 'json'}"
    if draft.key:
        yield f"    key: {_text(draft.key)}"
        yield _line(
            f"    on_null: {{column: {_flag(draft) if draft.deleted else '_deleted'}}}", "a deleted row is a tombstone"
        )
    elif first is not None:
        yield f"    # key: {_one_line(_text(first))}"
