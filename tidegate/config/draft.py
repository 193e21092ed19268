"""The commented pipeline files that `tidegate init` writes: for an existing topic, and the sample. Pure."""

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
from tidegate.formats.registry import DEFAULT, FORMATS
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_YAML_WORDS: Final = frozenset(["true", "false", "null", "yes", "no", "on", "off", "y", "n"])
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WIDTH: Final = 38
"""The column at which comments begin."""


class DraftColumn(msgspec.Struct, frozen=True):
    """A column; without a type, a field that is left out for the reason in `note`."""

    name: str
    type: DataType | None
    note: str = ""


class DeletedRows(msgspec.Struct, frozen=True):
    """The field that marks deleted rows of a flattened table, and the condition for it."""

    column: str
    condition: str
    repeated: bool
    """True if a record without value may follow that deletes the row again."""


class Draft(msgspec.Struct, frozen=True):
    """The known facts about the pipeline; `kafka` has the properties as written, including variables."""

    topic: str
    kafka: Mapping[str, str]
    folder: str
    """Absolute path; checkpoints are stored below it."""
    columns: Sequence[DraftColumn]
    """Empty for a topic that is not JSON."""
    remarks: Sequence[str]
    """Remarks about the records that were examined."""
    format: str = "json"
    """Format of the source; raw without columns."""
    decimals: str = ""
    """The source's `written_as` for texts in columns of decimals; empty for none."""
    key: str = ""
    """The column by which rows are deleted, for changes of a table."""
    deleted: DeletedRows | None = None
    """The mark of deleted rows in a flattened table; used with `key`."""


def render_type(kind: DataType) -> str:
    """Renders a type for the schema of a source, with field names in backticks where necessary."""
    if kind.element is not None:
        return f"array<{render_type(kind.element)}>"
    if kind.fields:
        fields = (f"{name if _FIELD.fullmatch(name) else f'`{name}`'}: {render_type(one)}" for name, one in kind.fields)
        return f"struct<{', '.join(fields)}>"
    return str(kind) if kind.kind == "decimal" else kind.kind


def withheld_secrets(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns variables that replace literal secrets, by property: secrets do not belong in a file."""
    return {
        name: "KAFKA_" + re.sub(r"[^A-Z0-9]+", "_", name.upper())
        for name, text in kafka.items()
        if is_secret_key(name) and "${" not in text
    }


def render_draft(draft: Draft) -> str:
    """Renders the file, ready for `tidegate validate`."""
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
    """Renders a YAML scalar, in quotes unless it is a plain word."""
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
    """Quotes texts with backticks, in which `$` is not meant as a variable."""
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
    """Returns a free name for the column that marks deleted rows."""
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


# -- the sample --------------------------------------------------------------------------------------------------------

_OTHERS = " or ".join(name for name in FORMATS if name != DEFAULT)

SAMPLE = """\
# A Tidegate pipeline: `tidegate validate FILE`, `tidegate explain FILE`, `tidegate run FILE`.
version: 1
name: orders-per-customer               # in metrics, consumer group, transactional ids and state: never change it

kafka:                                  # librdkafka properties for every source and sink
  bootstrap.servers: ${KAFKA_BOOTSTRAP:127.0.0.1:9092}
  # security.protocol: sasl_ssl
  # sasl.mechanism: SCRAM-SHA-512
  # sasl.username: tidegate
  # sasl.password: ${file:/etc/tidegate/password}    # never shown anywhere

# spark:                                # Spark properties
#   master: local[2]                    # default: local[parallelism]
#   spark.executor.memory: 2g

parallelism: 2                          # slots: Spark tasks that run the whole graph each
# max_parallelism: 128                  # key groups; fixed for the life of the state

checkpoints:
  directory: file:///var/lib/tidegate/orders-per-customer   # shared by daemon and executors
  interval: 1s                          # output becomes visible once per interval
  # mode: exactly-once                  # or at-least-once
  # timeout: 10m
  # transaction_timeout: 15m            # at most the broker's transaction.max.timeout.ms

# restart: {initial: 1s, max: 1m, give_up_after: 20 in 30m}
# http: {host: 127.0.0.1, port: 9095}   # /metrics, /livez, /readyz
# logging: {format: auto, level: info}

sources:
  orders:
    topic: orders                       # or topics: [a, b]
    format: @default@                        # or @others@
    schema: {id: bigint, customer: string, amount: double, at: timestamp}
    start: earliest                     # earliest | latest | 2026-11-01T00:00:00Z | {0: 17, 1: 4}
    # until: latest                     # stop at the ends seen at start
    bad_records: dead-letter            # or fail (the default): stop; or skip: leave them out; all are counted

steps:                                  # expressions are Spark SQL
  - {name: big, from: orders, where: amount >= 100}
  - name: priced
    from: big
    select:
      id: id
      customer: upper(customer)
      net: round(amount / 1.2, 2)
  - name: per_customer                  # running totals; its name is the name of its state
    from: priced
    key: customer
    aggregate: {orders: count(*), net: sum(net)}

sinks:
  priced_orders: {from: priced, topic: orders-priced, key: customer}
  totals: {from: per_customer, topic: orders-per-customer, key: customer}

dead_letters:                           # records that cannot be read, computed or written, with the reason
  topic: orders-dead
  # max_per_minute: 1000                # above it the pipeline stops

tests:                                  # `tidegate test FILE`: no Kafka, no Spark
  - name: small orders are dropped
    given:
      orders:
        - {value: {id: 1, customer: ann, amount: 120, at: 2026-01-01T00:00:00Z}}
        - {value: {id: 2, customer: bo, amount: 5, at: 2026-01-01T00:00:00Z}}
    expect:
      totals: [{key: ANN, value: {customer: ANN, orders: 1, net: 100}}]
""".replace("@default@", DEFAULT).replace("@others@", _OTHERS)
