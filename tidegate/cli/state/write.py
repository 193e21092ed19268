"""`tidegate state write`: creates a savepoint from rows, for a pipeline that starts with state from historical data."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tidegate.cli.pipeline_file import PIPELINE_FILE
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.fields.counts import render_count

if TYPE_CHECKING:
    from tidegate.coordinator.types import SourcePositions
    from tidegate.operators.builtin.kafka_source import SourceOperator
    from tidegate.plan.graph import Plan


@click.command()
@click.argument("savepoint")
@PIPELINE_FILE
@click.option(
    "--step", "steps", multiple=True, required=True, metavar="NAME", help="Step whose state the matching --input has."
)
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="PATH", help="Parquet, or JSON lines (.jsonl)."
)
@click.option(
    "--positions",
    multiple=True,
    metavar="SOURCE=OFFSETS",
    help="Offsets at which a source continues, by partition as JSON: "
    """'{"0": 17, "1": 4}', or for several topics '{"orders": {"0": 17}}'. The default is `start` in FILE.""",
)
def write(
    savepoint: str, file: Path, steps: tuple[str, ...], inputs: tuple[str, ...], positions: tuple[str, ...]
) -> None:
    """Write SAVEPOINT, a new folder, for the pipeline of FILE: the state of each --step from the rows of its --input.

    `tidegate run FILE --restore SAVEPOINT` starts with it. docs/state.md describes the columns of an input.
    """
    if len(steps) != len(inputs):
        raise click.UsageError(f"{len(steps)} --step and {len(inputs)} --input: each step has one input, in this order")
    from tidegate.checks.pipeline_file import plan_file

    loaded, plan = plan_file(file, os.environ)
    from tidegate.config.storages import derive_opener
    from tidegate.tables.rows import StateRows, read_input
    from tidegate.tables.writing import (
        StepRows,
        check_rows,
        choose_declaration,
        derive_identity,
        write_rows_savepoint,
    )

    parts = []
    for step, path in zip(steps, inputs, strict=True):
        rows = StateRows(choose_declaration(plan, step), f"step {step!r}, {path}")
        parts.append(StepRows(step, read_input(rows, path)))
    states = check_rows(plan, parts)
    given = derive_positions(plan, positions)
    made = write_rows_savepoint(
        plan,
        states,
        given,
        derive_opener(loaded.settings)(savepoint if "://" in savepoint else str(Path(savepoint).absolute())),
        identity=derive_identity(plan),
        token=secrets.token_hex(),
        now_ms=SYSTEM_CLOCK.now_ms(),
    )
    keys = sum(part.frame.height for part in parts)
    click.echo(
        f"{savepoint}: {render_count(keys, 'key')} of {render_count(len(parts), 'step')}, "
        f"{render_count(made.checkpoint.size_bytes, 'byte')}"
    )


def derive_positions(plan: Plan, texts: Sequence[str]) -> list[SourcePositions]:
    """Derives the positions of sources from `--positions`. Raises UsageError."""
    from tidegate.operators.builtin.kafka_source import SourceOperator

    sources = {str(source.name): source for source in plan.operators(SourceOperator)}
    given: dict[str, SourcePositions] = {}
    for text in texts:
        name, equals, offsets = text.partition("=")
        if not equals or name not in sources:
            raise click.UsageError(f"--positions {text}: write SOURCE=OFFSETS; sources are {', '.join(sources)}")
        if name in given:
            raise click.UsageError(f"--positions {name} is given twice")
        given[name] = _parse_offsets(sources[name], offsets)
    return list(given.values())


def _parse_offsets(source: SourceOperator, offsets_json: str) -> SourcePositions:
    from tidegate.coordinator.types import SourcePositions
    from tidegate.ids import TopicPartition

    text = f"--positions {source.name}={offsets_json}"
    try:
        if re.match(r'\s*\{\s*"[0-9]+"\s*:\s*-?[0-9]', offsets_json) and len(source.topics) == 1:
            by_topic = {source.topics[0]: msgspec.json.decode(offsets_json, type=dict[int, int])}
        else:
            by_topic = msgspec.json.decode(offsets_json, type=dict[str, dict[int, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"""{text}: write the offset of each partition as JSON, '{{"0": 17}}' ({error})"""
        ) from error
    unknown = [
        topic for topic in by_topic if not (topic in source.topics or (source.pattern and source.matches(topic)))
    ]
    if unknown:
        raise click.UsageError(f"{text}: {source.name} does not read topic {unknown[0]}")
    offsets = {TopicPartition(topic, n): at for topic, found in by_topic.items() for n, at in found.items()}
    if any(offset < 0 for offset in offsets.values()):
        raise click.UsageError(f"{text}: an offset must not be negative")
    for topic, found in by_topic.items():
        missing = [str(n) for n in range(max(found, default=0)) if n not in found]
        if missing:
            raise click.UsageError(
                f"{text}: {topic} has partitions without an offset ({', '.join(missing[:20])}): give each an offset, "
                "0 to read it from its beginning"
            )
    return SourcePositions(source.name, tuple(sorted(offsets.items())))
