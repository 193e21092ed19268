"""What the state of each step means: digests of every expression between the sources and the state. Pure.

The journal keeps them for each step with state and each source (or step with state) that feeds it; a start compares
them. How they are made is in `operators/meaning.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.meaning import VERSION, Branches, Meaning
from tidegate.plan.graph import Plan, Vertex, Way


def derive_meanings(plan: Plan) -> dict[OperatorName, Meaning]:
    """Of every step with state."""
    found: dict[OperatorName, Meaning] = {}
    arriving: defaultdict[VertexId, Branches] = defaultdict(tuple)
    for vertex in plan.vertices:  # topological, so that what an edge brings is known here
        for way, branches in _outputs(vertex, arriving[vertex.id], found):
            for edge in way.edges:
                arriving[plan.edges[edge].downstream] += branches
    return found


def find_changes(old: Meaning, new: Meaning) -> list[str]:
    """In what the meaning of a state has changed; a source that newly feeds it, in whatever way, is not a change."""
    changes: list[str] = []
    for origin, parts in old.items():
        if origin not in new:
            changes.append(f"it gets no records of {origin} any more")
            continue
        now = new[origin]
        names = list(parts)
        if _versions(parts.values()) == {str(VERSION)}:  # another version has other parts, too
            names += [name for name in now if name not in parts]
        changes += [f"{name} of {origin}" for name in names if _differ(parts.get(name, ""), now.get(name, ""))]
    return changes


def _differ(one: str, other: str) -> bool:
    return one != other and _versions((one, other)) == {str(VERSION)}


def _versions(digests: Iterable[str]) -> set[str]:
    return {digest.partition(":")[0] for digest in digests if digest}


def _outputs(vertex: Vertex, arriving: Branches, found: dict[OperatorName, Meaning]) -> Iterator[tuple[Way, Branches]]:
    """What leaves each node of a vertex; meanings of its steps with state are put into `found`."""
    incoming: dict[int, Branches] = {0: arriving}
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        meaning = node.operator.means(incoming[index])
        if meaning is not None:
            found[node.operator.name] = meaning
        ways = [(Way(node.children, node.edges), node.operator.passes(incoming[index]))]
        ways += [(way, node.operator.passes_at(name, incoming[index])) for name, way in node.sides.items()]
        for way, branches in ways:
            incoming.update(dict.fromkeys(way.children, branches))
        yield from ways
