"""The latest row of each key, for steps that hold rows of a table. Pure; `runtime.py` changes the state.

The operator `ROWS` of a step with `table` emits the rows. In those that delete their key, `_deleted` is true.
Rows of one key have an order only if they come from one partition, so the state also holds the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import INT, STRING
from tidegate.ids import StateName
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.fingerprint import EVENT_TIME, Lineages, digest
from tidegate.operators.spec import Columns, Requirement
from tidegate.operators.step import ColumnOrigin
from tidegate.state.declaration import LASTS, Serializer, StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

ROWS: Final = "rows"
"""The part after the step's name in the name of the operator that emits the rows of a table."""
LATEST: Final = StateName("rows")
_RESET_REMARK: Final = (
    "its table is empty, and older records of the topic are not read again: see `tidegate docs joins`"
)
PARTITION: Final = "__tidegate_partition"
TOPIC: Final = "__tidegate_topic"
PLACE: Final = (StateField(PARTITION, INT, nullable=False), StateField(TOPIC, STRING, nullable=False))
"""The first fields of a value: the partition of the row, and its topic if rows come from several."""


def declare_latest(keys: Columns, held: Columns, max_parallelism: int, ttl: Ttl | None = None) -> StateDeclaration:
    """Declares the state that has these columns of the latest row of each key."""
    shape = StateShape(
        tuple(StateField(name, kind) for name, kind in keys),
        (*PLACE, *(StateField(name, kind) for name, kind in held)),
        KEY_HASH,
        max_parallelism=max_parallelism,
        expires=ttl is not None,
        serializer=Serializer(parameters={} if ttl is None else {LASTS: ttl.lasts}),
    )
    return StateDeclaration(LATEST, shape, needs_history=True, reset_remark=_RESET_REMARK)


def digest_latest(
    kind: str, lineages: Lineages, keys: Iterable[str], held: Iterable[str], ttl: Ttl | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yields the digests of such a state, for `combine_digests`."""
    deciding, columns = [*keys, DELETED], [*held]
    for branch in lineages:
        conditions = sorted(branch.conditions)
        yield branch.origin, "what is kept", digest(kind, *(branch.columns[name] for name in deciding), *conditions)
        if ttl is not None:
            yield branch.origin, EVENT_TIME, branch.time
        for name in columns:
            yield branch.origin, f"`{name}`", digest("kept", branch.columns[name], *conditions)


def derive_place(origins: Iterable[ColumnOrigin]) -> tuple[str, ...]:
    """Returns the system columns that tell the partitions of rows apart; none for results, which have an order."""
    sources = [one.source for one in origins]
    known = [source for source in sources if source is not None]
    if len(known) < len(sources):
        return ()
    topics = {topic for source in known for topic in source.topics}
    return (PARTITION,) if len(topics) == 1 and not any(source.pattern for source in known) else (PARTITION, TOPIC)


def requires_of(place: tuple[str, ...], ttl: Ttl | None = None) -> frozenset[Requirement]:
    """Returns what rows must carry for these columns, and to expire."""
    needed = {Requirement.TOPIC} if TOPIC in place else set[Requirement]()
    return frozenset(needed if ttl is None else {*needed, Requirement.EVENT_TIME})
