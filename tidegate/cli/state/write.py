"""`tidegate state write`: creates a savepoint from rows, for a pipeline that starts with state from historical data."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from tidegate.cli.pipeline_file import PIPELINE_FILE
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.fields.counts import render_count

if TYPE_CHECKING:
    from tidegate.config.load import LoadedPipeline
    from tidegate.coordinator.entries import ClusterIdentity
    from tidegate.coordinator.types import SourcePositions
    from tidegate.ids import ClusterName
    from tidegate.plan.graph import Plan

WORDS: Final = frozenset({"earliest", "latest"})
PATIENCE_S: Final = 10.0


@click.command()
@click.argument("savepoint")
@PIPELINE_FILE
@click.option("--step", "steps", multiple=True, required=True, metavar="NAME", help="Whose state the next --input is.")
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="PATH", help="Parquet, or JSON lines (.jsonl)."
)
@click.option(
    "--positions",
    multiple=True,
    metavar="SOURCE=WHERE",
    help="Where a source continues: earliest, latest (both ask Kafka now), or offsets by partition as JSON: "
    """'{"0": 17, "1": 4}', of several topics '{"orders": {"0": 17}}'. Without it `start` of FILE counts.""",
)
def write(
    savepoint: str, file: Path, steps: tuple[str, ...], inputs: tuple[str, ...], positions: tuple[str, ...]
) -> None:
    """Make SAVEPOINT, a new folder, for the pipeline of FILE: the state of each --step from the rows of its --input.

    `tidegate run FILE --restore SAVEPOINT` begins with it. Which columns an input has is in docs/state.md.
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
    given, clusters = derive_positions(loaded, plan, positions)
    made = write_rows_savepoint(
        plan,
        states,
        given,
        derive_opener(loaded.settings)(savepoint if "://" in savepoint else str(Path(savepoint).absolute())),
        identity=derive_identity(plan, clusters),
        token=secrets.token_hex(),
        now_ms=SYSTEM_CLOCK.now_ms(),
    )
    keys = sum(part.frame.height for part in parts)
    click.echo(
        f"{savepoint}: {render_count(keys, 'key')} of {render_count(len(parts), 'step')}, "
        f"{render_count(made.checkpoint.size_bytes, 'byte')}"
    )


def derive_positions(
    loaded: LoadedPipeline, plan: Plan, texts: Sequence[str]
) -> tuple[list[SourcePositions], dict[ClusterName, ClusterIdentity]]:
    """Derives the positions from `--positions`, with the clusters that were asked.

    Raises UsageError, BrokerUnavailable.
    """
    from tidegate.operators.builtin.kafka_source import SourceOperator

    sources = {str(source.name): source for source in plan.operators(SourceOperator)}
    given: dict[str, str] = {}
    for text in texts:
        name, equals, where = text.partition("=")
        if not equals or name not in sources:
            raise click.UsageError(f"--positions {text}: write SOURCE=WHERE; sources are {', '.join(sources)}")
        if name in given:
            raise click.UsageError(f"--positions {name} is given twice")
        given[name] = where
    asked = {name: where for name, where in given.items() if where in WORDS}
    found = [_offsets(sources[name], where) for name, where in given.items() if name not in asked]
    if not asked:
        return found, {}
    looked_up, clusters = asyncio.run(_look_up(loaded, [(sources[name], where) for name, where in asked.items()]))
    return [*found, *looked_up], clusters


def _offsets(source: object, where: str) -> SourcePositions:
    from tidegate.coordinator.types import SourcePositions
    from tidegate.ids import TopicPartition
    from tidegate.operators.builtin.kafka_source import SourceOperator

    assert isinstance(source, SourceOperator)
    text = f"--positions {source.name}={where}"
    try:
        if re.match(r'\s*\{\s*"[0-9]+"\s*:\s*-?[0-9]', where) and len(source.topics) == 1:
            by_topic = {source.topics[0]: msgspec.json.decode(where, type=dict[int, int])}
        else:
            by_topic = msgspec.json.decode(where, type=dict[str, dict[int, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"""{text}: write earliest, latest or offsets by partition, '{{"0": 17}}' ({error})"""
        ) from error
    unknown = [
        topic for topic in by_topic if not (topic in source.topics or (source.pattern and source.matches(topic)))
    ]
    if unknown:
        raise click.UsageError(f"{text}: {source.name} does not read topic {unknown[0]}")
    offsets = {TopicPartition(topic, n): at for topic, found in by_topic.items() for n, at in found.items()}
    if any(offset < 0 for offset in offsets.values()):
        raise click.UsageError(f"{text}: an offset is 0 or more")
    for topic, found in by_topic.items():
        missing = [str(n) for n in range(max(found, default=0)) if n not in found]
        if missing:
            raise click.UsageError(
                f"{text}: {topic} has partitions that are not named ({', '.join(missing[:20])}): give each an offset, "
                "0 where it is to be read from its beginning"
            )
    return SourcePositions(source.name, tuple(sorted(offsets.items())))


async def _look_up(
    loaded: LoadedPipeline, wanted: Sequence[tuple[object, str]]
) -> tuple[list[SourcePositions], dict[ClusterName, ClusterIdentity]]:
    """Reads the current offsets."""
    from tidegate.coordinator.entries import ClusterIdentity
    from tidegate.coordinator.start_offsets import UnassignedSource
    from tidegate.daemon.kafka_clusters import KafkaClusters, open_clusters
    from tidegate.ids import TopicPartition
    from tidegate.operators.builtin.kafka_source import SourceOperator

    asked = [
        (msgspec.structs.replace(source, start=where), where)
        for source, where in wanted
        if isinstance(source, SourceOperator)
    ]
    by_pattern = [str(source.name) for source, _ in asked if source.pattern]
    if by_pattern:
        raise click.UsageError(
            f"--positions {by_pattern[0]}: it reads topics by a pattern; give offsets, or leave it out: `start` counts"
        )
    names: dict[ClusterName, set[str]] = {}
    for source, _ in asked:
        names.setdefault(source.cluster, set()).update(source.topics)
    every = open_clusters(loaded.settings, PATIENCE_S)
    kafka = KafkaClusters({name: edge for name, edge in every.clusters.items() if name in names})
    try:
        await kafka.open()
        facts = await kafka.cluster_facts(names)
        unplaced = [
            (
                source,
                UnassignedSource(
                    source.name,
                    tuple(
                        TopicPartition(topic, n)
                        for topic in source.topics
                        for n in range(facts[source.cluster][1][topic].partitions)
                    ),
                ),
            )
            for source, _ in asked
        ]
        found = await kafka.read_beginnings(unplaced, dt.datetime.now(dt.UTC))
    finally:
        await kafka.close()
    clusters = {
        name: ClusterIdentity(cluster_id, {topic: topics[topic].topic_id for topic in sorted(names[name])})
        for name, (cluster_id, topics) in facts.items()
    }
    return found, clusters
