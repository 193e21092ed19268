"""`tidegate init`: a commented pipeline file for an existing topic, as a sample, or an example of the cookbook."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from tidegate.cli.docs import find_shipped
from tidegate.cli.options import require_topic
from tidegate.config.draft import SAMPLE, DeletedRows, Draft, DraftColumn, render_draft, withheld_secrets
from tidegate.config.fields.counts import render_count
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.datatypes import BIGINT, BOOLEAN, DATE, INT, SMALLINT, STRING, TIMESTAMP, TINYINT, DataType, holds_kind
from tidegate.dev.topics.cluster import cluster_options, derive_written, resolve_properties
from tidegate.errors import TidegateError

if TYPE_CHECKING:  # the inference modules are imported where they are used
    from tidegate.formats.kinds.debezium.inference import Table

RECORDS: Final = 1000
KEYS: Final = (TINYINT, SMALLINT, INT, BIGINT, STRING, DATE, TIMESTAMP, BOOLEAN)
"""Types that a sink's keys may have."""
ADDED_PREFIX: Final = "__"
"""Prefix of the fields that Debezium's ExtractNewRecordState adds to flattened rows."""
DELETED: Final = "__deleted"
OP: Final = "__op"


# -- the examples of the cookbook: pipelines that each do one task, with their tests and the files that they read ------

SUFFIX: Final = ".yaml"


class ExampleMissing(TidegateError):
    """The cookbook has no example of that name."""

    code = "example-missing"
    exit_code = 2
    retriable = False


@dataclass(frozen=True)
class Example:
    """A pipeline file, and the files with the same stem that it reads: modules and schemas."""

    name: str
    pipeline: Traversable
    others: Sequence[Traversable]

    @property
    def question(self) -> str:
        """The question that it answers: the first line of the file, a comment."""
        return self.pipeline.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def find_examples(folder: Traversable | None = None) -> Mapping[str, Example]:
    """Find all examples by name. Raises ExampleMissing if this installation has none."""
    folder = find_shipped("cookbook", "examples/cookbook") if folder is None else folder
    found = sorted(folder.iterdir(), key=lambda one: one.name) if folder.is_dir() else []
    examples = {}
    for pipeline in (one for one in found if one.name.endswith(SUFFIX)):
        stem = pipeline.name.removesuffix(SUFFIX)
        others = [one for one in found if one.name.startswith(f"{stem}.") and one.name != pipeline.name]
        examples[stem] = Example(stem, pipeline, others)
    if not examples:
        raise ExampleMissing("this installation has no cookbook; reinstall the wheel of this version")
    return examples


def choose_example(name: str, examples: Mapping[str, Example]) -> Example:
    """Resolve an example by its name. Raises ExampleMissing with the most similar one."""
    if name in examples:
        return examples[name]
    hint = derive_suggestion(name, examples, otherwise="`tidegate init --example` lists all examples")
    raise ExampleMissing(f"there is no example {name}; {hint}", example=name)


def write_example(example: Example, file: Path) -> None:
    """Write an example to `file`, and the files that it reads next to it. Nothing is written if one of them exists."""
    texts = {file: example.pipeline} | {file.with_name(one.name): one for one in example.others}
    write_files({target: source.read_text(encoding="utf-8") for target, source in texts.items()})
    click.echo(f"{', '.join(map(str, texts))} written: `tidegate test {file}` runs the cases in it")


def write_files(texts: Mapping[Path, str]) -> None:
    """Write new files, all of them or none."""
    for file in texts:
        require_new(file)
    written = []
    for file, text in texts.items():
        try:
            with file.open("x", encoding="utf-8") as stream:
                written.append(file)
                stream.write(text)
        except OSError as error:
            for one in written:
                with contextlib.suppress(OSError):
                    one.unlink()
            raise click.ClickException(
                f"{file} cannot be written: {error.strerror or error}; choose another name"
            ) from error


def require_new(file: Path) -> None:
    """Refuse a file that exists, also a link that leads nowhere."""
    if os.path.lexists(file):
        raise click.ClickException(f"{file} exists; choose another name, or remove it")


def print_examples(examples: Mapping[str, Example]) -> None:
    """Print the names of all examples with the questions that they answer."""
    width = max(map(len, examples))
    for example in examples.values():
        click.echo(f"{example.name:<{width}}  {example.question}")
    click.echo("\n`tidegate init --example NAME` writes one to NAME.yaml, `tidegate docs cookbook` explains them")


def complete_example(context: click.Context, option: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - click's signature
    """Complete the name of an example, with its question."""
    return [
        CompletionItem(name, help=one.question) for name, one in find_examples().items() if name.startswith(incomplete)
    ]


# -- the command -------------------------------------------------------------------------------------------------------


class NothingToInfer(TidegateError):
    """The topic has no records."""

    code = "nothing-to-infer"
    exit_code = 1
    retriable = False


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--topic", help="Read records of this topic, and infer their schema.")
@click.option(
    "--records",
    type=click.IntRange(2, 100_000),
    default=RECORDS,
    show_default=True,
    help="Read up to this many records: half of them the first, half the newest.",
)
@click.option(
    "--example",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    shell_complete=complete_example,
    help="Write this example of the cookbook, by default to NAME.yaml; without NAME, list all.",
)
@cluster_options
def init(
    file: Path | None, topic: str | None, records: int, example: str | None, bootstrap: str, kafka: tuple[str, ...]
) -> None:
    """Write a commented pipeline file to FILE, which must not exist, or to the terminal.

    With --topic the file reads this topic with the schema that its records have. Only records of committed transactions
    are looked at. Properties given by --kafka are written to the file, secrets as variables.
    """
    if topic is None and kafka:
        raise click.UsageError("--kafka needs --topic: the sample has its own properties")
    if example is not None:
        _write_example(example, file, topic)
        return
    if file is not None:
        require_new(file)
    if topic is None:
        _write(file, SAMPLE)
        return
    require_topic(topic, "--topic: ")
    written = derive_written(bootstrap, kafka)
    found = _read(resolve_properties(written), topic, records)
    values, keys = [value for _, value in found], [key for key, _ in found]
    folder = (Path.cwd() if file is None else file.absolute().parent).as_posix()
    _write(file, render_draft(derive_draft(topic, written, folder, values, keys)))
    for name, variable in withheld_secrets(written).items():
        click.echo(f"{name} is not written to the file: set the variable {variable}", err=True)


def derive_draft(
    topic: str,
    kafka: dict[str, str],
    folder: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (),
) -> Draft:
    """Drafts a pipeline from a topic's records. Keys only matter for tables."""
    from tidegate.formats.kinds.debezium.inference import derive_table, find_key
    from tidegate.formats.kinds.json.inference import derive_schema
    from tidegate.formats.kinds.json.reader import JsonDecoder

    table = derive_table(values)
    if table is not None and table.columns:
        return _draft_changes(topic, kafka, folder, table, find_key(keys))
    found = derive_schema(values)
    remarks = [f"inferred from {render_count(len(values), 'record')}"]
    if not found.is_json:
        remarks = [f"{render_count(len(values), 'record')} examined: most are not JSON objects, so bytes are passed on"]
        return Draft(topic, kafka, folder, (), remarks)
    columns = [DraftColumn(one.name, one.type, one.note) for one in found.columns]
    columns += [DraftColumn(one.path, None, one.reason) for one in found.left_out]
    _, failures = JsonDecoder([(one.name, one.type) for one in found.columns]).decode_values(values)
    if failures:
        which = f"the first: {failures[0]}"
        remarks.append(f"{render_count(len(failures), 'record')} of them do not match these columns; {which}")
    types = {one.name: one.type for one in found.columns}
    deleted, key = _find_deleted(types), _find_key(find_key(keys), types)
    if deleted is None or not key:
        return Draft(topic, kafka, folder, columns, remarks)
    remarks.append(f"rows of a table, flattened by Debezium: `{deleted.column}` marks deleted rows")
    return Draft(topic, kafka, folder, columns, remarks, key=key, deleted=deleted)


def _find_deleted(types: Mapping[str, DataType]) -> DeletedRows | None:
    """Finds the column that marks deleted rows.

    Debezium's ExtractNewRecordState adds `__deleted` to rows, and `__op` if the connector requests it.
    """
    match types.get(DELETED), types.get(OP):
        case DataType(kind="string"), _:
            return DeletedRows(DELETED, f"`{DELETED}` = 'true'", repeated=True)
        case DataType(kind="boolean"), _:
            return DeletedRows(DELETED, f"`{DELETED}`", repeated=True)
        case _, DataType(kind="string"):
            return DeletedRows(OP, f"`{OP}` = 'd'", repeated=False)
    return None


def _find_key(key: Sequence[str], types: Mapping[str, DataType]) -> str:
    """Returns the column by which rows are deleted; empty if no column has a type that a key may have."""
    fields = (name for name in types if not name.startswith(ADDED_PREFIX))
    return next((name for name in (*key, *fields) if types.get(name) in KEYS), "")


def _draft_changes(topic: str, kafka: dict[str, str], folder: str, table: Table, key: Sequence[str]) -> Draft:
    """Drafts a pipeline from a table of change events and the columns of its key."""
    columns = [DraftColumn(one.name, one.type, one.note) for one in table.columns]
    columns += [DraftColumn(one.path, None, one.reason) for one in table.left_out]
    events = render_count(table.events, "change event")
    remarks = [f"the schema in {events} has these columns"] if table.typed else [f"inferred from the rows of {events}"]
    if not table.typed:
        remarks.append(
            "decimals written as text, and dates and timestamps written as numbers, cannot be recognised: "
            "`tidegate docs formats/debezium`"
        )
    known = {one.name: one.type for one in table.columns}
    chosen = _find_key(key, known)
    if len(key) > 1:
        remarks.append(f"the key of the table has {len(key)} columns: {', '.join(key)}")
    has_decimals = any(holds_kind(one.type, ["decimal"]) for one in table.columns)
    written_as = "schema" if table.typed else "text"  # without schemas only numbers are inferred as decimals
    return Draft(topic, kafka, folder, columns, remarks, "debezium", written_as if has_decimals else "", chosen)


def _read(kafka: dict[str, str], topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Reads keys and values of the first and the newest records of a topic. Raises NothingToInfer."""
    from tidegate.dev.topics.client import TopicRecords, find_topic

    find_topic(kafka, topic)
    with TopicRecords(kafka, topic, committed=True) as reader:
        bounds = reader.bounds()
        starts = {number: first for number, (first, _) in bounds.items()}
        ends = {number: end for number, (_, end) in bounds.items()}
        found = [*islice(reader.records(starts, ends), count - count // 2), *reader.newest(count // 2)]
    if not found:
        raise NothingToInfer(
            f"topic {topic} has no committed records to infer a schema from; write some (`tidegate topic produce "
            f"{topic}`), or use the sample (`tidegate init` without --topic)"
        )
    return list({(one.partition, one.offset): (one.key, one.value) for one in found}.values())


def _write_example(name: str, file: Path | None, topic: str | None) -> None:
    """Writes an example, or lists all of them if `name` is empty."""
    if topic is not None:
        raise click.UsageError("--example and --topic exclude each other: an example has its own topics")
    examples = find_examples()
    if name:
        chosen = choose_example(name, examples)
        write_example(chosen, Path(chosen.pipeline.name) if file is None else file)
    elif file is None:
        print_examples(examples)
    else:
        raise click.UsageError("--example needs the name of an example to write; without FILE it lists all")


def _write(file: Path | None, text: str) -> None:
    if file is None:
        click.echo(text, nl=False)
        return
    write_files({file: text})
    click.echo(f"{file} written; review it, then run `tidegate validate {file}`")
