"""Results that not every step can handle: those that are emitted again or retracted, and those without event time.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.expressions.expression import columns_of
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.spec import LATE, Emits, Operator, Requirement
from tidegate.plan.changes import leads_to_tombstones
from tidegate.plan.logical import LogicalGraph, LogicalNode

Found = tuple[OperatorName, str, str, str]
"""Name of a step or sink, the key in the file, the effect, the remedy."""


def find_counted_again(graph: LogicalGraph, words: Mapping[str, str]) -> Iterator[Found]:
    """Yields steps that count every result of a step that emits a new one for each record, such as totals of totals.

    `words` are the keys in the file that determine the kinds of the steps, by step name.
    """
    givers: dict[OperatorName, OperatorName] = {}
    for name, node in graph.items():
        emits = node.operator.emits()
        of = next((givers[one.upstream] for one in node.inputs if one.upstream in givers), None)
        if of is not None and node.operator.counts_updates():
            word = words[name]
            yield (
                name,
                word,
                f"`{of}` gives a new result with each record, and `{word}` counts every one of them",
                f"give `{of}` a `window`, or read what `{of}` reads; nothing, if every result is meant",
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


def find_withheld(graph: LogicalGraph, corrections: Mapping[str, str], words: Mapping[str, str]) -> Iterator[Found]:
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
            for word, happens, remedy in found:
                yield name, word or words[name], happens, remedy
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
    remedy = f"calculate it from the key and the window of `{of}` alone"
    told = f"rows that delete a result of `{of}` have NULL in what it is calculated from:"
    if not isinstance(operator.topic, str) and operator.topic.column in nulls:
        yield "topic", f"{told} they are bad records", remedy
    if operator.partition in nulls:
        yield "partition", f"{told} the tombstone goes by its key, to another partition", remedy
    if operator.key in nulls:
        yield "key", f"{told} they are bad records", remedy
