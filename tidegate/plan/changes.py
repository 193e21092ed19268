"""Retractions: which sources must provide row kinds, how steps downstream use them, and which steps cannot handle
results that are emitted again, retracted, or without event time. Pure.

ADR 51 has the reasons; `formats/row_kinds.py` defines the kinds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

import msgspec

from tidegate.expressions.expression import Cast, ColumnReference, columns_of
from tidegate.formats.registry import FORMATS
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED, SourceOperator
from tidegate.operators.builtin.upsert import UpsertOperator
from tidegate.operators.fingerprint import Lineages, StateFingerprint
from tidegate.operators.spec import LATE, Emits, Operator, Planned, Requirement
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode, downstream_of
from tidegate.plan.state_fingerprints import derive_meaning

Salt = tuple[OperatorName, str]
"""A column in the output of an operator."""


def derive_changing(graph: LogicalGraph) -> LogicalGraph:
    """Returns the graph with row kinds on every path to an operator that retracts rows, and on no other.

    Before each sink that such rows reach, an upsert operator is inserted. A sink of tombstones needs row kinds if a
    step upstream filters rows, or if a row determines its topic or partition: a row that was there before an update but
    not after it must be deleted.
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
                whole.add(name)  # a union may also have rows of other sources
            carried = name in whole and name in needing
            kinds = Planned(carries=(Requirement.ROW_KIND,) if carried else (), some_kinds=True)
            found[name] = replace(node, operator=msgspec.structs.replace(node.operator, planned=kinds))
    return found


def _find_changing(graph: LogicalGraph) -> set[OperatorName]:
    """Returns everything that adds kinds to rows, and every operator that these rows reach."""
    return _reached_by(graph, (name for name, node in graph.items() if _adds_kinds(node)))


def _reached_by(graph: LogicalGraph, names: Iterable[OperatorName]) -> set[OperatorName]:
    """Returns these operators and those that receive their rows. An operator that adds kinds itself passes none on."""
    found = set(names)
    for name, node in graph.items():
        if not _adds_kinds(node) and any(one.upstream in found for one in node.passing()):
            found.add(name)
    return found


def _find_carrying(graph: LogicalGraph) -> tuple[set[OperatorName], set[OperatorName]]:
    """Returns the operators that must provide row kinds, and those that are reached by rows with kinds."""
    changing = _find_changing(graph)
    selecting = _reached_by(graph, (name for name in changing if graph[name].operator.selects_by() is not None))
    needing: set[OperatorName] = set()
    for name in reversed(graph):
        node, ports = graph[name], _kind_ports(graph[name])
        if name in changing and (ports or _writes_tombstones(node, chosen=name in selecting)):
            needing.add(name)
        if name in needing and (ports or not _adds_kinds(node)):
            needing.update(one.upstream for one in node.passing() if not ports or one.port in ports)
    giving = (
        name
        for name, node in graph.items()
        if node.operator.emits() is Emits.RETRACTIONS or (name in needing and _is_changelog(node))
    )
    return needing, _reached_by(graph, giving)


def _is_changelog(node: LogicalNode) -> bool:
    return isinstance(node.operator, SourceOperator) and FORMATS[node.operator.format].is_changelog


def _adds_kinds(node: LogicalNode) -> bool:
    """Tells whether its rows may have kinds regardless of its inputs."""
    return _is_changelog(node) or node.operator.emits() is Emits.RETRACTIONS


def _kind_ports(node: LogicalNode) -> set[int]:
    """Returns the ports on which it handles retractions."""
    return {one.port for one in node.inputs if Requirement.ROW_KIND in node.operator.requires(one.port)}


def _writes_tombstones(node: LogicalNode, *, chosen: bool) -> bool:
    """Tells whether it writes tombstones for rows that an update may move; `chosen`: a step upstream filters rows."""
    sink = node.operator
    return isinstance(sink, SinkOperator) and sink.deleted is not None and (chosen or any(_named(sink)))


def _named(sink: SinkOperator) -> tuple[str | None, ...]:
    """Returns the columns by which rows choose the topic and the partition of their records."""
    return None if isinstance(sink.topic, str) else sink.topic.column, sink.partition


def _with_upserts(graph: LogicalGraph, sink: SinkOperator, node: LogicalNode) -> LogicalGraph:
    (reads,) = node.inputs
    columns = graph[reads.upstream].operator.output_columns(reads.output)
    place = tuple(dict.fromkeys(name for name in (sink.key, *_named(sink)) if name is not None))
    before = UpsertOperator(OperatorName(f"{sink.name}.upserts"), columns, place, sink.deleted)
    return {before.name: LogicalNode(before, node.inputs), sink.name: LogicalNode(sink, (Input(before.name),))}


def find_left_behind(graph: LogicalGraph) -> Iterator[tuple[OperatorName, str]]:
    """Yields sinks of tombstones with a computed key that receive rows of a table without kinds, and the key.

    Nothing deletes the row of a key that an update has changed.
    """
    needing, _ = _find_carrying(graph)
    # By source: a sink may receive rows with kinds from one source and rows without kinds from another.
    plain = _reached_by(graph, (name for name, node in graph.items() if _is_changelog(node) and name not in needing))
    changes = {name: node for name, node in graph.items() if name in plain}
    for name, node in changes.items():
        sink = node.operator
        if not isinstance(sink, SinkOperator) or sink.deleted is None or sink.key is None:
            continue
        if _is_computed(changes, node, sink.key):
            yield name, sink.key


def _is_computed(changes: LogicalGraph, node: LogicalNode, column: str, *, made: bool = False) -> bool:
    """Tells whether a column is computed from a row of a table; `made` means that an expression of it is.

    `changes` is the part of the graph that table rows without kinds reach. A column that is passed on unchanged, or
    cast, may be the table's key. An update does not change the record's own key or topic.
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
    """Yields sinks of tombstones that changes reach on several paths, and the origin of the changes.

    Paths have no relative order, so a retraction on one could delete what an insert on another has added. Running
    totals start anew here, because their results have no such order to lose.
    """
    ways: dict[OperatorName, Counter[OperatorName]] = {}
    for name, node in graph.items():
        arriving = sum((ways[one.upstream] for one in node.inputs), Counter[OperatorName]())
        ways[name] = Counter([name]) if _adds_kinds(node) else arriving
        if isinstance(node.operator, SinkOperator) and node.operator.deleted is not None:
            yield from ((name, of) for of, count in arriving.items() if count > 1)


def leads_to_tombstones(graph: LogicalGraph, name: OperatorName) -> bool:
    """Tells whether the output of an operator reaches a sink of upserts."""
    reached = (graph[one].operator for one in downstream_of(graph, (name,)))
    return any(isinstance(one, SinkOperator) and one.deleted is not None for one in reached)


def find_unrepeatable(graph: LogicalGraph) -> Iterator[tuple[OperatorName, str, Salt]]:
    """Yields steps that retract rows, a part of their result, and the nearest column it depends on that may differ.

    Such a column may have another value when its row is retracted. Each state's fingerprint is compared with the one
    computed with a different lineage for the column; the parts that differ depend on it.
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
    """Returns the fingerprints of all steps that retract rows."""
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
            passing = ports[0] if operator.preserves_record(output) else arriving
            lineages = operator.lineage(passing, output)
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


# -- results that not every step can handle ----------------------------------------------------------------------------

Found = tuple[OperatorName, str, str, str]
"""Name of a step or sink, the key in the file, the effect, the remedy."""


def find_counted_again(graph: LogicalGraph, keys: Mapping[str, str]) -> Iterator[Found]:
    """Yields steps that count every result of a step that emits a new one for each record, such as totals of totals.

    `keys` are the keys in the file that determine the kinds of the steps, by step name.
    """
    givers: dict[OperatorName, OperatorName] = {}
    for name, node in graph.items():
        emits = node.operator.emits()
        of = next((givers[one.upstream] for one in node.inputs if one.upstream in givers), None)
        if of is not None and node.operator.counts_updates():
            key = keys[name]
            yield (
                name,
                key,
                f"`{of}` emits a new result for each record, and `{key}` counts every one",
                f"give `{of}` a `window`, or read what `{of}` reads; ignore this if every result should count",
            )
        of = next((givers[one.upstream] for one in node.passing() if one.upstream in givers), None)
        if emits is Emits.UPDATES:
            givers[name] = name
        elif emits in (Emits.PASSED, Emits.LATEST) and of is not None:
            givers[name] = of


def find_untimed(graph: LogicalGraph) -> Iterator[tuple[OperatorName, OperatorName]]:
    """Yields steps that need the event time of rows that have none, with the step whose results these rows are."""
    untimed: dict[tuple[OperatorName, str], OperatorName] = {}
    for name, node in graph.items():
        operator = node.operator
        for output in ("", *operator.side_outputs()):
            of = next(
                (untimed[key] for one in node.passing(output) if (key := (one.upstream, one.output)) in untimed), None
            )
            if operator.loses_time(output):
                untimed[name, output] = name
            elif of is not None and not operator.ASSIGNS_TIME:
                untimed[name, output] = of
        if operator.ASSIGNS_TIME:
            continue
        for one in node.inputs:
            if (one.upstream, one.output) in untimed and Requirement.EVENT_TIME in operator.requires(one.port):
                yield name, untimed[one.upstream, one.output]


def find_withheld(graph: LogicalGraph, corrections: Mapping[str, str], keys: Mapping[str, str]) -> Iterator[Found]:
    """Yields what prevents the rows that delete a result of a corrected session from becoming tombstones.

    These rows have the session's key and window, but NULL for every aggregate and everything computed from one.
    """
    empty: dict[OperatorName, frozenset[str]] = {}
    for name, node in graph.items():
        nulls = frozenset[str]().union(*(empty.get(one.upstream, ()) for one in node.passing() if one.output != LATE))
        if nulls and leads_to_tombstones(graph, name):
            of = corrections[name.partition(".")[0]]
            one = node.operator
            found = _withhold_sink(one, nulls, of) if isinstance(one, SinkOperator) else _withhold_step(one, nulls, of)
            for key, happens, remedy in found:
                yield name, key or keys[name], happens, remedy
        empty[name] = _derive_empty(node, nulls)


def _derive_empty(node: LogicalNode, nulls: frozenset[str]) -> frozenset[str]:
    """Returns the columns of an output that are NULL in rows that delete a result."""
    operator = node.operator
    if operator.emits() is Emits.CORRECTIONS:
        keys = {key for one in node.inputs for key in one.keys}
        return frozenset(dict(operator.output_columns())) - keys - operator.window_columns() - {DELETED}
    computed = operator.computes()
    return frozenset(name for name, one in computed.items() if columns_of(one) & nulls) if computed else nulls


def _withhold_step(operator: Operator, nulls: frozenset[str], of: str) -> Iterator[tuple[str, str, str]]:
    columns = operator.selects_by() or frozenset()
    column = min(columns & nulls, default="")
    if not column or DELETED in columns:
        return
    if operator.splits_rows():
        yield (
            "",
            f"rows that delete a result of `{of}` have NULL in `{column}`: its rows are never deleted",
            f"write the column as it is, or remove `allowed_lateness` and `emit` of `{of}`",
        )
    else:
        yield (
            "",
            f"rows that delete a result of `{of}` do not pass, since their `{column}` is NULL",
            f"write `{DELETED} OR ...` in a `where`, or no tombstone is written",
        )


def _withhold_sink(operator: SinkOperator, nulls: frozenset[str], of: str) -> Iterator[tuple[str, str, str]]:
    remedy = f"compute it only from the key and the window of `{of}`"
    told = f"rows that delete a result of `{of}` have NULL in the columns that it is computed from:"
    if not isinstance(operator.topic, str) and operator.topic.column in nulls:
        yield "topic", f"{told} they are bad records", remedy
    if operator.partition in nulls:
        yield "partition", f"{told} the tombstone goes by its key, to another partition", remedy
    if operator.key in nulls:
        yield "key", f"{told} they are bad records", remedy
