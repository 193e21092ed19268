"""Rows that are taken back: which sources have to give rows their kinds, and what steps downstream make of that. Pure.

ADR 51 has the reasons. `formats/row_kinds.py` says what the kinds are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import msgspec

from tidegate.expressions.expression import Cast, ColumnReference, columns_of
from tidegate.formats.registry import FORMATS
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.upsert import UpsertOperator
from tidegate.operators.fingerprint import Lineages, StateFingerprint
from tidegate.operators.spec import Emits, Planned, Requirement
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode, downstream_of
from tidegate.plan.state_fingerprints import derive_meaning

Salt = tuple[OperatorName, str]
"""A column of what an operator gives."""


def derive_changing(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with kinds of rows on every way to an operator that takes rows back, and nowhere else; before each
    sink that they reach is what makes records of them.

    A sink of tombstones needs them where a step on the way chooses rows, or a row its topic or partition: one that was
    there before an update and is not after it has to be deleted.
    """
    needing, carrying = _find_carrying(graph)
    whole: set[OperatorName] = set()
    found: LogicalGraph = {}
    for name, node in graph.items():
        if name not in carrying:
            found[name] = node
        elif isinstance(node.operator, SinkOperator):
            found |= _with_upserts(graph, node.operator, node)
        else:
            if node.operator.emits() is Emits.RETRACTIONS or all(one.upstream in whole for one in node.inputs):
                whole.add(name)  # a union may have rows of other sources, too
            carried = name in whole and name in needing
            kinds = Planned(carries=(Requirement.ROW_KIND,) if carried else (), some_kinds=True)
            found[name] = replace(node, operator=msgspec.structs.replace(node.operator, planned=kinds))
    return found


def _find_changing(graph: LogicalGraph) -> set[OperatorName]:
    """What rows of a source of changes reach, and the source."""
    return downstream_of(graph, (name for name, node in graph.items() if _is_changelog(node)))


def _find_carrying(graph: LogicalGraph) -> tuple[set[OperatorName], set[OperatorName]]:
    """What leads to operators that need kinds of rows, and what is reached by rows that have some."""
    changing = _find_changing(graph)
    selecting = downstream_of(graph, (name for name in changing if graph[name].operator.selects_by() is not None))
    needing: set[OperatorName] = set()
    for name in reversed(graph):
        node, ports = graph[name], _kind_ports(graph[name])
        if name in changing and (ports or _writes_tombstones(node, chosen=name in selecting)):
            needing.add(name)
        if name in needing:
            needing.update(one.upstream for one in node.inputs if not ports or one.port in ports)
    giving = (
        name for name in needing if _is_changelog(graph[name]) or graph[name].operator.emits() is Emits.RETRACTIONS
    )
    return needing, downstream_of(graph, giving)


def _is_changelog(node: LogicalNode) -> bool:
    return isinstance(node.operator, SourceOperator) and FORMATS[node.operator.format].is_changelog


def _adds_kinds(node: LogicalNode) -> bool:
    """Whether its rows may have kinds whatever its inputs have."""
    return _is_changelog(node) or node.operator.emits() is Emits.RETRACTIONS


def _kind_ports(node: LogicalNode) -> set[int]:
    """The ports on which it takes rows back."""
    return {one.port for one in node.inputs if Requirement.ROW_KIND in node.operator.requires(one.port)}


def _writes_tombstones(node: LogicalNode, *, chosen: bool) -> bool:
    """Of rows that an update may take somewhere else. `chosen`: on the way."""
    sink = node.operator
    return isinstance(sink, SinkOperator) and sink.deleted is not None and (chosen or any(_named(sink)))


def _named(sink: SinkOperator) -> tuple[str | None, ...]:
    """The columns by which rows choose the topic and the partition of their records."""
    return None if isinstance(sink.topic, str) else sink.topic.column, sink.partition


def _with_upserts(graph: LogicalGraph, sink: SinkOperator, node: LogicalNode) -> LogicalGraph:
    (reads,) = node.inputs
    columns = graph[reads.upstream].operator.output_columns(reads.output)
    place = tuple(dict.fromkeys(name for name in (sink.key, *_named(sink)) if name is not None))
    before = UpsertOperator(OperatorName(f"{sink.name}.upserts"), columns, place, sink.deleted)
    return {before.name: LogicalNode(before, node.inputs), sink.name: LogicalNode(sink, (Input(before.name),))}


def find_left_behind(graph: LogicalGraph) -> Iterator[tuple[OperatorName, str]]:
    """Sinks of tombstones that get rows without kinds, and their key where it is computed from such a row of a table:
    nothing deletes the row of a key that an update has changed.
    """
    needing, _ = _find_carrying(graph)
    # By source: beside rows of one that have kinds, a sink may get rows of another that have none.
    plain = downstream_of(graph, (name for name, node in graph.items() if _is_changelog(node) and name not in needing))
    changes = {name: node for name, node in graph.items() if name in plain}
    for name, node in changes.items():
        sink = node.operator
        if not isinstance(sink, SinkOperator) or sink.deleted is None or sink.key is None:
            continue
        if _is_computed(changes, node, sink.key):
            yield name, sink.key


def _is_computed(changes: LogicalGraph, node: LogicalNode, column: str, *, made: bool = False) -> bool:
    """Whether a column that arrives is made of a row of a table. `made`: an expression of it is. `changes`: the part of
    the graph that rows of tables without kinds reach.

    A column as it is, or cast, may be the table's key, and what the record has by itself (its key, its topic) does not
    change with an update.
    """
    for before in (changes[one.upstream] for one in node.inputs if one.upstream in changes):
        operator = before.operator
        if isinstance(operator, SourceOperator):
            own = {one.name for one in operator.metadata if one.part in ("key", "topic")}
            found = made and column not in own
        elif (expression := operator.computes().get(column)) is not None:
            while isinstance(expression, Cast):
                expression = expression.operand
            made_here = made or not isinstance(expression, ColumnReference)
            found = any(_is_computed(changes, before, name, made=made_here) for name in columns_of(expression))
        elif column in operator.unrepeatable():
            found = True
        else:
            found = _is_computed(changes, before, column, made=made)
        if found:
            return True
    return False


def find_disordered(graph: LogicalGraph) -> Iterator[tuple[OperatorName, OperatorName]]:
    """Sinks of tombstones, and what gives the changes that reach them on several ways, which have no order: what an
    update takes back on one could delete what it adds on another. Totals of them have no order to lose.
    """
    ways: dict[OperatorName, Counter[OperatorName]] = {}
    for name, node in graph.items():
        arriving = sum((ways[one.upstream] for one in node.inputs), Counter[OperatorName]())
        ways[name] = Counter([name]) if _adds_kinds(node) else arriving
        if isinstance(node.operator, SinkOperator) and node.operator.deleted is not None:
            yield from ((name, of) for of, count in arriving.items() if count > 1)


def leads_to_tombstones(graph: LogicalGraph, name: OperatorName) -> bool:
    """Whether a sink of upserts gets what comes out of an operator."""
    reached = (graph[one].operator for one in downstream_of(graph, (name,)))
    return any(isinstance(one, SinkOperator) and one.deleted is not None for one in reached)


def find_unrepeatable(graph: LogicalGraph) -> Iterator[tuple[OperatorName, str, Salt]]:
    """Steps that take rows back, a part of what they make, and the nearest column that it goes by although the column
    may differ when a row is taken back.

    By the meaning of each state, with a column that means something else: what differs then goes by the column.
    """
    plain = _follow(graph, None)
    if not plain:
        return
    nearest = [(name, column) for name in reversed(graph) for column in graph[name].operator.unrepeatable()]
    known: set[tuple[OperatorName, str]] = set()
    for salt in nearest:
        for name, meaning in _follow(graph, salt).items():
            for part in _changed(plain[name], meaning):
                if (name, part) not in known:
                    known.add((name, part))
                    yield name, part, salt


def _changed(one: StateFingerprint, other: StateFingerprint) -> list[str]:
    return [part for origin, parts in one.items() for part, digest in parts.items() if other[origin][part] != digest]


def _follow(graph: LogicalGraph, salt: Salt | None) -> dict[OperatorName, StateFingerprint]:
    """The meanings of all steps that take rows back."""
    passed: dict[tuple[OperatorName, str], Lineages] = {}
    found: dict[OperatorName, StateFingerprint] = {}
    for name, node in graph.items():
        operator = node.operator
        ports: defaultdict[int, Lineages] = defaultdict(tuple)
        for one in node.inputs:
            ports[one.port] += passed[one.upstream, one.output]
        arriving = tuple(chain.from_iterable(ports.values()))
        meaning = derive_meaning(operator, ports) if _kind_ports(node) else None
        if meaning is not None:
            found[name] = meaning
        for output in ("", *operator.side_outputs()):
            lineages = operator.lineage_at(output, arriving) if output else operator.lineage(arriving)
            passed[name, output] = _salted(lineages, salt[1]) if salt is not None and salt[0] == name else lineages
    return found


def _salted(lineages: Lineages, column: str) -> Lineages:
    return tuple(
        msgspec.structs.replace(
            branch,
            columns={name: f"{digest}?" if name == column else digest for name, digest in branch.columns.items()},
        )
        for branch in lineages
    )
