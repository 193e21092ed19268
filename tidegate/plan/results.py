"""Results of steps that count: some are given again or taken back, and not every step can follow that. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.expressions.expression import AggregateCall, Column, columns_of
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.operators.kinds.aggregate import AggregateOperator, ChangesOperator
from tidegate.operators.kinds.dedup import DedupOperator
from tidegate.operators.kinds.explode import ExplodeOperator
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.kinds.keep import RankingOperator
from tidegate.operators.kinds.keep.settings import EACH, ON_CLOSE
from tidegate.operators.kinds.route import RouteOperator
from tidegate.operators.kinds.window import ADDED, WindowOperator
from tidegate.operators.spec import LATE, Operator
from tidegate.plan.changes import leads_to_tombstones
from tidegate.plan.logical import LogicalGraph, LogicalNode

UNMOVED: Final = frozenset({"min", "max", "min_by", "max_by", "bool_and", "bool_or", "first", "last"})
"""Aggregates that mean something over every result that there was."""

OF_WINDOWS: Final = frozenset(name for name, _ in ADDED)

Found = tuple[OperatorName, str, str, str]
"""Of a step or sink: its name, the key in the file, what happens, the remedy."""


def find_counted_again(graph: LogicalGraph) -> Iterator[Found]:
    """Steps that count every result of a step which gives another one with each record: a total of totals is none."""
    givers: dict[OperatorName, OperatorName] = {}
    for name, node in graph.items():
        operator = node.operator
        of = next((givers[one.upstream] for one in node.inputs if one.upstream in givers), None)
        word = _counts(operator)
        if of is not None and word:
            yield (
                name,
                word,
                f"`{of}` gives a new result with each record, and `{word}` counts every one of them",
                f"give `{of}` a `window`, or read what `{of}` reads; nothing, if every result is meant",
            )
        if isinstance(operator, ChangesOperator | WindowOperator | DedupOperator):
            continue
        if isinstance(operator, AggregateOperator) or (isinstance(operator, RankingOperator) and operator.emit == EACH):
            givers[name] = name
        elif of is not None:
            givers[name] = of


def _counts(operator: Operator) -> str:
    """The word of a step to which a result that is given again is one more; empty for others."""
    if isinstance(operator, AggregateOperator | WindowOperator):
        return "aggregate" if any(map(_moves, (call for _, call in operator.aggregates))) else ""
    return "keep" if isinstance(operator, RankingOperator) else ""


def _moves(call: AggregateCall) -> bool:
    return call.function not in UNMOVED


def find_withheld(graph: LogicalGraph, corrections: Mapping[str, str]) -> Iterator[Found]:
    """What keeps rows that delete a result of a corrected session from the tombstone that they are to become: these
    have the session's key and window, and NULL in place of every aggregate and of what is made of it.
    """
    empty: dict[OperatorName, frozenset[str]] = {}
    for name, node in graph.items():
        operator = node.operator
        nulls = frozenset[str]().union(*(empty.get(one.upstream, ()) for one in node.inputs if one.output != LATE))
        if nulls and leads_to_tombstones(graph, name):
            of = corrections[name.partition(".")[0]]
            for word, happens, remedy in _withhold(operator, nulls, of):
                yield name, word, happens, remedy
        if isinstance(operator, WindowOperator) and name in corrections:
            empty[name] = frozenset(column for column, _ in operator.aggregates)
        elif isinstance(operator, SelectOperator):
            empty[name] = frozenset(column for column, one in operator.columns if columns_of(one) & nulls)
        else:
            empty[name] = nulls


def _withhold(operator: Operator, nulls: frozenset[str], of: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(operator, FilterOperator | RouteOperator):
        columns = columns_of(operator.predicate if isinstance(operator, FilterOperator) else operator.choice)
        if columns & nulls and DELETED not in columns:
            yield (
                "where" if isinstance(operator, FilterOperator) else "route",
                f"rows that delete a result of `{of}` do not pass, since their `{min(columns & nulls)}` is NULL",
                f"write `{DELETED} OR ...` in a `where`, or no tombstone is written",
            )
    elif isinstance(operator, ExplodeOperator) and operator.explode.column in nulls:
        yield (
            "explode",
            f"rows that delete a result of `{of}` have NULL in `{operator.explode.column}`: its rows are never deleted",
            f"write the column as it is, or remove `allowed_lateness` and `emit` of `{of}`",
        )
    elif isinstance(operator, SinkOperator):
        remedy = f"calculate it from the key and the window of `{of}` alone"
        told = f"rows that delete a result of `{of}` have NULL in what it is calculated from:"
        if not isinstance(operator.topic, str) and operator.topic.column in nulls:
            yield "topic", f"{told} they are bad records", remedy
        if operator.partition in nulls:
            yield "partition", f"{told} the tombstone goes by its key, to another partition", remedy
        if operator.key in nulls:
            yield "key", f"{told} they are bad records", remedy


def find_windowless(graph: LogicalGraph) -> Iterator[Found]:
    """Rankings that end with a window by the name of a key column alone: what no window has made has no event time that
    the rows of a key share, and each event time is a ranking of its own.
    """
    for name, node in graph.items():
        operator = node.operator
        if not isinstance(operator, RankingOperator) or operator.emit != ON_CLOSE:
            continue
        foreign = [
            column for column in operator.keys if column in OF_WINDOWS and not _is_of_window(graph, node, column)
        ]
        if foreign:
            yield (
                name,
                "keep",
                f"no window has made this `{foreign[0]}`, by which rows of one event time are ranked, `on close`",
                "write `emit: each`; or `emit: on close`, if all rows of a key have one event time",
            )


def _is_of_window(graph: LogicalGraph, node: LogicalNode, column: str) -> bool:
    """Whether a column that arrives is the window's as it was made, on all ways."""
    for one in node.inputs:
        before = graph[one.upstream]
        if isinstance(before.operator, WindowOperator):
            own = one.output != LATE and column in OF_WINDOWS
        elif isinstance(before.operator, SelectOperator):
            expression = dict(before.operator.columns)[column]
            own = isinstance(expression, Column) and _is_of_window(graph, before, expression.name)
        else:
            own = bool(before.inputs) and _is_of_window(graph, before, column)
        if not own:
            return False
    return True
