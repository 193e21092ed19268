"""`tidegate dead-letters`: lists failed records with their reasons, shows a dead letter and replays records."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from tidegate.checks.pipeline_file import plan_file
from tidegate.checks.registry import Ask
from tidegate.cli.options import FORM, PIPELINE_FILE, require_topic
from tidegate.cli.output import echo_json, printable, render_table
from tidegate.cli.replay import Replayed, ReplayOrder, render_places, render_repeating
from tidegate.cli.replay import replay as replay_dead_letters
from tidegate.clock import describe_stamp
from tidegate.config.errors import ConfigErrors
from tidegate.config.fields.counts import render_count
from tidegate.config.load import read_sections
from tidegate.config.models import PipelineSettings
from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.ids import ClusterName, SourceTopic
from tidegate.plan.replays import Replays
from tidegate.sources.dead_letter_topic import DeadLettersRefused, DeadLetterTopic, Marks, dead_letter_of, find_place

_KIND = click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only these kinds; may be repeated.")
_STEP = click.option("--step", "steps", multiple=True, metavar="NAME", help="Only of these steps; may be repeated.")

BYTES_SHOWN: Final = 2000
LISTED: Final = 20
LISTED_MAX: Final = 10_000
_KEPT: Final = "\n\t"
"""Control characters that the commands print unescaped."""


class DeadLetterGroup(msgspec.Struct):
    """Dead letters with the same step, kind, topic and cluster."""

    step: str
    kind: str
    topic: str
    cluster: ClusterName
    letters: int = 0
    open: int = 0
    """Dead letters that have not been replayed yet."""
    first_ms: int | None = None
    last_ms: int | None = None
    """When the first and the last of them were written."""
    repeats: str | None = ""
    """Sinks and states that may already have the records, so that a replay is refused. None: unknown."""


_Groups = dict[tuple[str, str, str, ClusterName], DeadLetterGroup]


class ListedDeadLetter(msgspec.Struct):
    """One dead letter and the origin of its record."""

    partition: int
    """`partition` and `offset` refer to the dead-letter topic."""
    offset: int
    written_ms: int | None
    step: str
    kind: str
    record: str
    written_again_to: str | None


class DeadLetterListing(msgspec.Struct):
    """The output of `list`."""

    groups: list[DeadLetterGroup]
    letters: list[ListedDeadLetter]
    """The newest dead letters."""


def _read(file: Path) -> PipelineSettings:
    return read_sections(file, os.environ, "name", "kafka", "clusters", "dead_letters")


@click.group(name="dead-letters")
def dead_letters() -> None:
    """Records that a pipeline could not process: what failed, why, and writing them again."""


@dead_letters.command(name="list")
@PIPELINE_FILE
@_KIND
@_STEP
@click.option(
    "--limit",
    type=click.IntRange(0, LISTED_MAX),
    default=LISTED,
    show_default=True,
    help="Number of the newest letters to list; all are counted.",
)
@FORM
def list_dead_letters(file: Path, kinds: tuple[str, ...], steps: tuple[str, ...], limit: int, style: str) -> None:
    """Count the dead letters of the pipeline of FILE by step, kind and topic, and list the newest of them.

    For each group it names the sinks and states that may have the records already: see `replay`. `show` takes the
    partition and offset of a letter.
    """
    settings, chosen = _read(file), _chosen(kinds, steps, None, ())
    replays: Replays | None = None
    try:
        replays = _read_replays(file, Ask.COPY)
    except ConfigErrors as errors:
        click.echo(f"cannot tell which sinks and states may have the records: {errors.problems[0]}", err=True)
    groups: _Groups = {}
    newest: list[tuple[tuple[int, int, int], ListedDeadLetter]] = []
    with DeadLetterTopic(find_place(settings)) as topic:
        bounds, marks = topic.bounds(), Marks()
        for message in topic.read(bounds):
            marks.note(message)
        for letter in filter(chosen, topic.letters(bounds)):
            written_to = marks.of(letter)
            _count(groups, letter, replays, is_open=written_to is None)
            heapq.heappush(newest, _listed(letter, written_to))
            if len(newest) > limit:
                heapq.heappop(newest)
    rows = sorted(groups.values(), key=lambda one: (-one.open, one.step, one.kind, one.topic, one.cluster))
    listing = DeadLetterListing(rows, [one for _, one in sorted(newest, reverse=True)])
    if style == "json":
        echo_json(listing)
    elif not rows:
        click.echo("no dead letters")
    else:
        _print(listing)


def _count(groups: _Groups, letter: DeadLetter, replays: Replays | None, *, is_open: bool) -> None:
    name = (letter.step, letter.kind, letter.topic, letter.cluster)
    if name not in groups:
        repeats = None if replays is None else _find_repeats(replays, letter)
        groups[name] = DeadLetterGroup(*name, repeats=repeats)
    group = groups[name]
    group.letters += 1
    group.open += is_open
    if letter.written_ms is not None:
        group.first_ms = min(letter.written_ms, group.first_ms or letter.written_ms)
        group.last_ms = max(letter.written_ms, group.last_ms or letter.written_ms)


def _find_repeats(replays: Replays, letter: DeadLetter) -> str:
    """Returns who would get the record a second time from a replay."""
    route = replays.route(letter)
    continues = route.retry_topic and not route.obstacle
    return "" if continues else str(replays.holders(letter.step, letter.source_topic, letter.topic))


def _listed(letter: DeadLetter, written_to: str | None) -> tuple[tuple[int, int, int], ListedDeadLetter]:
    """Returns a dead letter for the list, preceded by its sort key, which orders by age."""
    place = (letter.partition, letter.offset)
    listed = ListedDeadLetter(*place, letter.written_ms, letter.step, letter.kind, letter.place, written_to)
    return (letter.written_ms or 0, *place), listed


def _print(listing: DeadLetterListing) -> None:
    lines = _group_lines(listing.groups)
    lines += ["", *_dead_letter_lines(listing.letters)] if listing.letters else []
    left = sum(one.letters for one in listing.groups) - len(listing.letters)
    if left:
        lines.append(f"{render_count(left, 'older letter')} not listed: use --limit, --step or --kind")
    click.echo(printable("\n".join(lines), _KEPT))


def _group_lines(groups: list[DeadLetterGroup]) -> list[str]:
    titles = ("step", "kind", "topic", "letters", "open", "first", "last", "records may be in")
    cells = [
        (
            *(one.step, one.kind, str(SourceTopic(one.cluster, one.topic)) if one.topic else "-"),
            *(f"{one.letters:,}", f"{one.open:,}", _moment(one.first_ms), _moment(one.last_ms)),
            "?" if one.repeats is None else one.repeats or "-",
        )
        for one in groups
    ]
    return render_table(titles, cells, ("letters", "open"))


def _dead_letter_lines(letters: list[ListedDeadLetter]) -> list[str]:
    titles = ("partition", "offset", "written", "step", "kind", "record", "written again to")
    cells = [
        (
            *(str(one.partition), str(one.offset), _moment(one.written_ms)),
            *(one.step, one.kind, one.record, one.written_again_to or "-"),
        )
        for one in letters
    ]
    return render_table(titles, cells, ("partition", "offset"))


@dead_letters.command()
@PIPELINE_FILE
@click.option("--partition", type=click.IntRange(0), required=True, help="Partition of the dead-letter topic.")
@click.option("--offset", type=click.IntRange(0), required=True, help="Offset of the letter in that partition.")
@FORM
def show(file: Path, partition: int, offset: int, style: str) -> None:
    """Show one dead letter of the pipeline of FILE: place, reason, headers and value."""
    with DeadLetterTopic(find_place(_read(file))) as topic:
        bounds = topic.bounds()
        first, end = bounds.get(partition, (0, 0))
        if not first <= offset < end:
            known = ", ".join(f"{number}: {low} to {high - 1}" for number, (low, high) in bounds.items() if low < high)
            raise DeadLettersRefused(f"{topic.topic}[{partition}] has no offset {offset}; available: {known or 'none'}")
        marks, letter = Marks(), None
        for message in topic.read({partition: (offset, end)}):
            marks.note(message)
            if message.offset() == offset:
                letter = dead_letter_of(message)
        if letter is None:
            raise DeadLettersRefused(
                f"the record at offset {offset} of {topic.topic}[{partition}] is not a dead letter"
            )
    written_to = marks.of(letter)
    if style == "json":
        echo_json(_plain(letter, written_to))
        return
    click.echo(printable("\n".join(_lines(letter, written_to)), _KEPT))


def _plain(letter: DeadLetter, written_to: str | None) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(letter, builtin_types=(bytes,))
    texts = {name: _text(found.pop(name)) for name in ("key", "value")}
    headers = [[name, _text(value)] for name, value in letter.headers]
    del found["reason"]  # its parts have fields of their own
    return {**found, **texts, "headers": headers, "written_again_to": written_to}


def _lines(letter: DeadLetter, written_to: str | None) -> list[str]:
    about = {
        "record": letter.place,
        "record's time": _moment(letter.timestamp_ms),
        "step": letter.step,
        "kind": letter.kind,
        "message": letter.message,
        "bytes": letter.known,
        **({"replayed": f"{letter.tries} times at this step"} if letter.tries else {}),
        "written": _moment(letter.written_ms),
        "written again to": written_to or "-",
        "key": _text(letter.key),
    }
    lines = [f"{name + ':':<18}{value}" for name, value in about.items()]
    lines += [f"header {name}: {_text(value)}" for name, value in letter.headers]
    lines += _row_lines(letter)
    return [*lines, "value:", _text(letter.value)]


def _row_lines(letter: DeadLetter) -> list[str]:
    if letter.row is None:
        size = letter.row_size
        return [] if size is None else [f"row: left out, it has {render_count(size, 'byte')}"]
    masked = letter.row_masked
    note = [f"row: {render_count(masked, 'text')} had a secret of the pipeline, which is replaced"] if masked else []
    return [f"row: {letter.row}", f"row's types: {letter.row_types or '-'}", *note]


def _text(data: bytes | None) -> str:
    """Renders bytes as text if they are printable, otherwise in hexadecimal digits."""
    if data is None:
        return "NULL"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if (text or not data) and text == printable(text, _KEPT):
        return text
    return "0x" + data[:BYTES_SHOWN].hex() + (f"... ({len(data)} bytes)" if len(data) > BYTES_SHOWN else "")


def _moment(at_ms: int | None) -> str:
    return "-" if at_ms is None else describe_stamp(at_ms)


@dead_letters.command()
@PIPELINE_FILE
@click.option("--to", metavar="TOPIC", help="Write to this topic; default: each record to its own.")
@_KIND
@_STEP
@click.option("--partition", type=click.IntRange(0), help="Only letters of this partition of the dead-letter topic.")
@click.option("--offset", "offsets", type=click.IntRange(0), multiple=True, help="Only these; needs --partition.")
@click.option(
    "--whole-record",
    is_flag=True,
    help="Also write records that sinks or states may already have; they are processed again.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written without writing it.")
def replay(
    file: Path,
    to: str | None,
    kinds: tuple[str, ...],
    steps: tuple[str, ...],
    partition: int | None,
    offsets: tuple[int, ...],
    whole_record: bool,
    dry_run: bool,
) -> int:
    """Replay dead letters of the pipeline of FILE, once the cause of the failure is corrected.

    If `dead_letters` has a `retry_topic`, the row of a letter continues at the step or sink that failed, and nothing
    else processes it again. The row must fit the step in FILE; otherwise the reason is reported.

    Without a retry topic, and for letters of a source, the whole record is written again with its key, value, headers
    and timestamp, and processed as a new one. This is refused if a chosen record failed in a later step or a sink, and
    other sinks or states may already have it. --whole-record writes it anyway.

    Each letter is replayed once, and each whole record is written once, even if the command is repeated or killed:
    replayed letters are marked in the dead-letter topic. Records get the additional header `__tidegate.replayed.from`.
    """
    if offsets and partition is None:
        raise click.UsageError("--offset needs --partition")
    if to is not None:
        require_topic(to, "--to: ")
    settings = _read(file)
    letters = settings.dead_letters
    if to is not None and letters is not None and to in (letters.topic, letters.retry_topic):
        raise click.UsageError("--to must be neither the dead-letter topic nor the retry topic")
    order = ReplayOrder(_chosen(kinds, steps, partition, offsets), to, dry_run=dry_run)
    if not whole_record:
        replays = _read_replays(file, Ask.EITHER)
        order = order._replace(holding=lambda one, target: replays.holders(one.step, one.source_topic, target))
        if to is None:
            order = order._replace(route=replays.route)
    done = replay_dead_letters(settings, order)
    if done.resumed:
        click.echo(f"{render_count(done.resumed, 'row')} {_verb(done.resumed, dry_run)} sent to the step that failed")
    if done.written or not done.resumed:
        click.echo(f"{render_count(done.written, 'record')} {_verb(done.written, dry_run)} written again")
    if done.joined:
        click.echo(f"{render_count(done.joined, 'letter')} of records that are written for another letter, only marked")
    if (kinds or steps) and done == Replayed():
        click.echo(f"no letter has this kind or step: `tidegate dead-letters list {file}` lists all")
    if done.marked:
        click.echo(f"{render_count(done.marked, 'letter')} had been replayed before")
    if done.kept:
        click.echo(
            f"{render_count(done.kept, 'letter')} not replayed without a complete record: see `dead-letters show`"
        )
    for reason, places in done.refused.items():
        click.echo(f"{render_count(len(places), 'record')} not written: {reason} (letters {render_places(places)})")
    for one, places in done.repeating.items():
        click.echo(f"{render_count(len(places), 'record')} not written: {render_repeating(*one, places)}")
    if done.repeating:
        click.echo("a replay that includes these is refused: leave them out, or process them again with --whole-record")
    return int(bool(done.refused or done.repeating))


def _verb(count: int, dry_run: bool) -> str:
    return "would be" if dry_run else "was" if count == 1 else "were"


def _read_replays(file: Path, ask: Ask) -> Replays:
    """Answers by the pipeline file as it is now. Raises ConfigErrors if the file yields no plan."""
    return Replays(plan_file(file, os.environ, ask)[1])


def _chosen(
    kinds: tuple[str, ...], steps: tuple[str, ...], partition: int | None, offsets: tuple[int, ...]
) -> Callable[[DeadLetter], bool]:
    return lambda letter: (
        (not kinds or letter.kind in kinds)
        and (not steps or letter.step in steps)
        and (partition is None or letter.partition == partition)
        and (not offsets or letter.offset in offsets)
    )
