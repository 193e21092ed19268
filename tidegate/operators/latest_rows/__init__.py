"""The latest row of each key, for steps that hold rows of a table. Pure; `runtime.py` changes the state.

The operator `ROWS` of a step with `table` emits the rows. In those that delete their key, `_deleted` is true.
Rows of one key have an order only if they come from one partition, so the state also holds the partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.datatypes import INT, STRING
from tidegate.ids import StateName
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.fingerprint import Lineages, digest
from tidegate.operators.spec import Columns, Requirement
from tidegate.operators.step import ColumnOrigin
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

ROWS: Final = "rows"
"""The part after the step's name in the name of the operator that emits the rows of a table."""
LATEST: Final = StateName("rows")
PLACE: Final = (
    StateField("__tidegate_partition", INT, nullable=False),
    StateField("__tidegate_topic", STRING, nullable=False),
)
"""The first fields of a value: where the row came from. The topic is empty if all rows come from one."""


def declare_latest(keys: Columns, held: Columns, max_parallelism: int) -> StateDeclaration:
    """Declares the state that has these columns of the latest row of each key."""
    shape = StateShape(
        tuple(StateField(name, kind) for name, kind in keys),
        (*PLACE, *(StateField(name, kind) for name, kind in held)),
        KEY_HASH,
        max_parallelism=max_parallelism,
    )
    return StateDeclaration(LATEST, shape)


def digest_latest(
    kind: str, lineages: Lineages, keys: Iterable[str], held: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    """Yields the digests of such a state, for `combine_digests`."""
    deciding, columns = [*keys, DELETED], [*held]
    for branch in lineages:
        conditions = sorted(branch.conditions)
        yield branch.origin, "what is kept", digest(kind, *(branch.columns[name] for name in deciding), *conditions)
        for name in columns:
            yield branch.origin, f"`{name}`", digest("kept", branch.columns[name], *conditions)


def require_topic(origins: Iterable[ColumnOrigin]) -> tuple[Requirement, ...]:
    """Returns what rows must carry so that their partitions can be told apart."""
    sources = {one.source.name: one.source for one in origins}
    topics = {topic for source in sources.values() for topic in source.topics}
    one_topic = len(topics) == 1 and not any(source.pattern for source in sources.values())
    return () if one_topic else (Requirement.TOPIC,)
