"""`tidegate topic`: create, list, write and read topics, so that a first pipeline needs no other tool."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, Final

import click

from tidegate.cli.options import FORM, require_topic
from tidegate.config.fields.counts import render_count
from tidegate.dev.topics.client import TopicRecords, TopicWriter, create_topic, find_topic, read_topics
from tidegate.dev.topics.cluster import cluster_options, derive_written, resolve_properties
from tidegate.dev.topics.records import LineReader, LineRefused, SeenRecord, render_json, render_text

NEWEST: Final = 10
INTERRUPTED: Final = 130
_INTERNAL: Final = "__"


def _checked(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    return require_topic(name)


_NAME = click.argument("name", callback=_checked)


@click.group()
def topic() -> None:
    """Create, list, fill and read topics of the development broker, or of any other with --bootstrap."""


def _all_checked(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(require_topic, dict.fromkeys(names)))


@topic.command("create")
@click.argument("names", metavar="NAME...", nargs=-1, required=True, callback=_all_checked)
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Number of partitions of each topic.",
)
@click.option(
    "--config", multiple=True, metavar="NAME=VALUE", help="A setting of each topic, for example retention.ms=-1."
)
@cluster_options
def create(
    names: tuple[str, ...], partitions: int, config: tuple[str, ...], bootstrap: str, kafka: tuple[str, ...]
) -> None:
    """Create topics and wait until they can be written. The first one that cannot be created ends the command."""
    pairs = dict(text.partition("=")[::2] for text in config)
    if "" in pairs or "" in pairs.values():
        raise click.UsageError("--config takes NAME=VALUE, for example --config retention.ms=-1")
    properties = resolve_properties(derive_written(bootstrap, kafka))
    for name in names:
        create_topic(properties, name, partitions, pairs)
        click.echo(f"{name}: created with {render_count(partitions, 'partition')}")


@topic.command("list")
@click.option("--internal", is_flag=True, help="Also list Kafka's own topics.")
@FORM
@cluster_options
def list_topics(internal: bool, style: str, bootstrap: str, kafka: tuple[str, ...]) -> None:
    """List topics with their number of partitions."""
    found = read_topics(resolve_properties(derive_written(bootstrap, kafka)))
    shown = {name: count for name, count in found.items() if internal or not name.startswith(_INTERNAL)}
    if style == "json":
        click.echo(json.dumps([{"topic": name, "partitions": count} for name, count in shown.items()], indent=2))
        return
    if not shown:
        click.echo("no topics; `tidegate topic create NAME` creates one", err=True)
    width = max(map(len, shown), default=0)
    for name, count in shown.items():
        click.echo(f"{name:<{width}}  {render_count(count, 'partition')}")


@topic.command("produce")
@_NAME
@click.argument("lines", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option("--format", "style", type=click.Choice(["json", "text"]), default="json", help="text: any lines.")
@click.option("--key", help="Key of every record.")
@click.option("--key-separator", metavar="TEXT", help="Text between the key and the value of each line.")
@cluster_options
def produce(
    name: str,
    lines: BinaryIO,
    style: str,
    key: str | None,
    key_separator: str | None,
    bootstrap: str,
    kafka: tuple[str, ...],
) -> int:
    """Write the lines of FILE (default: standard input) to a topic, a record each; blank lines are left out.

    A line is one JSON value, unless --format text is given. The first line that is not ends the command; those before
    it are written.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other: one key for all, or one in each line")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty; give the text between key and value, for example :")
    properties = resolve_properties(derive_written(bootstrap, kafka))
    reader = LineReader(json=style == "json", key=key, separator=key_separator)
    find_topic(properties, name)
    if lines.isatty():
        click.echo(f"{'a JSON value' if reader.json else 'a record'} a line; Ctrl-D ends the input", err=True)
    return _write(TopicWriter(properties, name), reader, lines, name)


def _write(writer: TopicWriter, reader: LineReader, lines: Iterable[bytes], name: str) -> int:
    """Writes lines and returns the exit code. Records written before a refused line or Ctrl-C are also reported."""
    code = 0
    try:
        for number, line in enumerate(lines, 1):
            record = reader.parse(number, line)
            if record is not None:
                writer.write(*record)
    except LineRefused as refused:
        click.echo(f"Error: {refused.message}", err=True)
        code = refused.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    click.echo(f"{name}: {render_count(writer.flush(), 'record')} written")
    return code


@topic.command("read")
@_NAME
@click.option("--from-beginning", is_flag=True, help="Start at the first record, partition by partition.")
@click.option("--max", "limit", type=click.IntRange(1), help="Print up to this many records.")
@click.option("--follow", is_flag=True, help="Keep reading what arrives, until Ctrl-C.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", help="Format of each line.")
@click.option("--uncommitted", is_flag=True, help="Also print records of open and aborted transactions.")
@cluster_options
def read(
    name: str,
    from_beginning: bool,
    limit: int | None,
    follow: bool,
    style: str,
    uncommitted: bool,
    bootstrap: str,
    kafka: tuple[str, ...],
) -> None:
    """Print the newest records of a topic (ten, or --max) in the order of their timestamps.

    With --from-beginning all of them, up to the end as it is now; with --follow those that come. Only records of
    committed transactions are shown, unless --uncommitted is given.

    A line is `partition:offset  timestamp  key  value`; `-` stands for no key, `(null)` for no value. With --format
    json it is an object, which has the headers, too, and a value that is JSON is nested in it.
    """
    properties = resolve_properties(derive_written(bootstrap, kafka))
    render = render_json if style == "json" else render_text
    shown = 0
    find_topic(properties, name)  # names the nearest one if it does not exist
    with (
        contextlib.suppress(KeyboardInterrupt),
        TopicRecords(properties, name, committed=not uncommitted) as reader,
    ):
        for record in _choose(reader, from_beginning=from_beginning, follow=follow, limit=limit):
            click.echo(render(record))
            shown += 1
        if not shown:
            click.echo(f"{name}: no {'records' if uncommitted else 'committed records'}", err=True)


def _choose(reader: TopicRecords, *, from_beginning: bool, follow: bool, limit: int | None) -> Iterator[SeenRecord]:
    """Yields the records to show."""
    if not from_beginning and not follow:
        yield from reader.newest(NEWEST if limit is None else limit)
        return
    bounds = reader.bounds()
    starts = {number: first if from_beginning else end for number, (first, end) in bounds.items()}
    ends = None if follow else {number: end for number, (_, end) in bounds.items()}
    yield from islice(reader.records(starts, ends), limit)
