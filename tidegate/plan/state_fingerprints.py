"""Fingerprints of the state of each step: digests of every expression between the sources and the state. Pure.

The journal keeps them for each step with state, per source (or step with state) that feeds it; a start compares them.
`operators/fingerprint.py` defines how they are computed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_ports, is_optional
from tidegate.operators.spec import Operator
from tidegate.plan.graph import OutputPath, Plan, Vertex

Ports = Mapping[int, Lineages]
"""Lineages that reach an operator, by port."""
_COLUMN: Final = re.compile("(?:key )?`(.*)`", re.DOTALL)


def derive_fingerprints(plan: Plan) -> dict[OperatorName, StateFingerprint]:
    """Returns the fingerprints of all steps with state."""
    found = ((operator.name, derive_meaning(operator, ports)) for operator, ports in _walk(plan))
    return {name: meaning for name, meaning in found if meaning is not None}


def derive_lineages(plan: Plan) -> dict[OperatorName, Lineages]:
    """Returns the lineages of the rows that reach each step and each sink, on all of its ports."""
    return {operator.name: tuple(chain.from_iterable(ports.values())) for operator, ports in _walk(plan)}


def _walk(plan: Plan) -> Iterator[tuple[Operator, Ports]]:
    """Yields all operators with what reaches them, in topological order."""
    arriving: defaultdict[VertexId, dict[int, Lineages]] = defaultdict(dict)
    for vertex in plan.vertices:  # topological, so that what an edge carries is known here
        reached, outgoing = _pass_vertex(vertex, arriving[vertex.id])
        yield from reached
        for way, lineages in outgoing:
            for edge in (plan.edges[index] for index in way.edges if not plan.edges[index].retries):
                ports = arriving[edge.downstream]
                ports[edge.port] = (*ports.get(edge.port, ()), *lineages)


def derive_meaning(operator: Operator, ports: Ports) -> StateFingerprint | None:
    """Returns the fingerprint of an operator's state from the lineages on each of its ports; None without state."""
    found = {port: operator.fingerprint(lineages, port) for port, lineages in sorted(ports.items())}
    return combine_ports({port: meaning for port, meaning in found.items() if meaning is not None})


class FingerprintChanges(msgspec.Struct, frozen=True):
    """The differences between two fingerprints of a state."""

    other: tuple[str, ...] = ()
    """Parts whose meaning has changed, as text."""
    added: tuple[str, ...] = ()
    """Aggregates that were added; they begin at the change."""
    gone: tuple[str, ...] = ()
    """Aggregates that the step no longer has and that no directive drops."""


def compare_fingerprints(
    old: StateFingerprint,
    new: StateFingerprint,
    columns: Mapping[str, str] = MappingProxyType({}),
    dropped: Collection[str] = (),
) -> FingerprintChanges:
    """Compares two fingerprints of a state; a new source that feeds the step is not a change.

    `columns` are those that were renamed (new name -> old name), `dropped` those that are dropped by a directive.
    """
    other: dict[str, None] = {}
    added: dict[str, None] = {}
    gone: dict[str, None] = {}
    names = {before: now for now, before in columns.items()}
    for origin, parts in old.items():
        if origin not in new:
            other[f"it no longer gets records of {origin}"] = None
            continue
        now, taken = new[origin], set()
        version = _versions(now.values())
        for part, digest in parts.items():
            column = _column_of(part)
            current = part if column is None else part.replace(f"`{column}`", f"`{names.get(column, column)}`")
            taken.add(current)
            if column is not None and part == f"`{column}`" and current not in now:
                if column not in dropped and _differ(digest, "", version):
                    gone[column] = None
            elif (current in now or not is_optional(part)) and _differ(digest, now.get(current, ""), version):
                other[f"{current} of {origin}"] = None
        if _versions(parts.values()) == version:  # other versions also have other parts
            for part in [one for one in now if one not in taken]:
                column = _column_of(part)
                if column is not None and part == f"`{column}`":
                    added[column] = None
                elif not is_optional(part):
                    other[f"{part} of {origin}"] = None
    return FingerprintChanges(tuple(other), tuple(sorted(added)), tuple(gone))


def columns_of(meaning: StateFingerprint) -> set[str]:
    """Returns the columns that have a part of a fingerprint of their own."""
    return {column for parts in meaning.values() for part in parts if (column := _column_of(part)) is not None}


def _column_of(part: str) -> str | None:
    """Returns the column of a part: an aggregate's is in backticks, a key's has a word before it."""
    found = _COLUMN.fullmatch(part)
    return None if found is None else found[1]


def _differ(one: str, other: str, version: set[str]) -> bool:
    return one != other and _versions((one, other)) == version


def _versions(digests: Iterable[str]) -> set[str]:
    return {digest.partition(":")[0] for digest in digests if digest}


def _pass_vertex(
    vertex: Vertex, arriving: Ports
) -> tuple[list[tuple[Operator, Ports]], list[tuple[OutputPath, Lineages]]]:
    """Returns the operators of a vertex with what reaches them, and what leaves them."""
    incoming: dict[int, Ports] = {0: arriving}
    reached: list[tuple[Operator, Ports]] = []
    outgoing: list[tuple[OutputPath, Lineages]] = []
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        operator, ports = node.operator, incoming[index]
        reached.append((operator, ports))
        ways = [(way, operator.lineage(_passing(operator, name, ports), name)) for name, way in node.outputs.items()]
        for way, lineages in ways:
            incoming.update({child: {0: lineages} for child in way.children})
        outgoing += ways
    return reached, outgoing


def _passing(operator: Operator, output: str, ports: Ports) -> Lineages:
    """Returns the lineages of the rows from which an output is made: if it preserves records, those on port 0."""
    if operator.preserves_record(output):
        return ports.get(0, ())
    return tuple(chain.from_iterable(ports.values()))
