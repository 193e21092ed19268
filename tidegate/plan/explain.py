"""The interpretation of a pipeline file, for people and programs: graph, exchanges, state, settings, origins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from tidegate.config.fields.counts import render_count
from tidegate.config.fields.units import render_duration
from tidegate.config.listing import list_settings, render_value
from tidegate.config.load import LoadedPipeline
from tidegate.config.properties import derive_output_properties
from tidegate.expressions.tokens import derive_tokens
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.spec import LATE, Operator, render_columns, texts_of
from tidegate.plan.build import check_pipeline
from tidegate.plan.graph import Edge, Node, Plan, Vertex
from tidegate.plan.steps import PlacedExpression
from tidegate.user_code.describe import DIGEST_SHOWN

Explanation = dict[str, Any]
"""Plain values, ready for JSON; without secrets."""


def derive_explanation(
    loaded: LoadedPipeline, plan: Plan, begun: Mapping[OperatorName, Mapping[str, int]] = MappingProxyType({})
) -> Explanation:
    """Returns the whole explanation of a pipeline.

    `begun` has, by step, the aggregates that were added, or an empty name for all, and the checkpoint after which they
    count, as in the journal.
    """
    return {
        "pipeline": plan.pipeline,
        "guarantee": "exactly-once" if plan.exactly_once else "at-least-once",
        "parallelism": plan.parallelism,
        "max_parallelism": plan.max_parallelism,
        "vertices": [_vertex(vertex, plan, begun) for vertex in plan.vertices],
        "exchanges": [_edge(edge, plan) for edge in plan.edges],
        "code": {path: len(text) for path, text in plan.modules.items()},
        "files": {file.name: {"sha256": file.sha256, "bytes": file.size_bytes} for file in plan.files},
        "settings": [
            {"path": ".".join(map(str, one.path)), "value": one.value, "origin": loaded.origin(one.path)}
            for one in list_settings(loaded)
        ],
        "replaced_texts": list(_find_replaced_texts(loaded, check_pipeline(loaded).expressions)),
    }


def _vertex(vertex: Vertex, plan: Plan, begun: Mapping[OperatorName, Mapping[str, int]]) -> Explanation:
    return {
        "name": vertex.id,
        "subtasks": [f"{vertex.id}[{index}]" for index in range(plan.parallelism)],
        "operators": [_node(node, vertex, plan, begun.get(node.operator.name, {})) for node in vertex.nodes],
    }


def _node(node: Node, vertex: Vertex, plan: Plan, begun: Mapping[str, int]) -> Explanation:
    operator, late = node.operator, _late_readers(node, vertex, plan)
    marks = [f"{column or 'all of it'} counts from checkpoint {at} on" for column, at in sorted(begun.items())]
    code = operator.user_code()
    described = [] if code is None else [f"code {code.digest[:DIGEST_SHOWN]}"]
    shape = (
        derive_output_properties(operator.kafka, transactional=plan.exactly_once)
        if isinstance(operator, SinkOperator)
        else {}
    )
    return {
        "name": operator.name,
        "kind": operator.kind,
        "output": texts_of(operator.pruned_columns()),
        **({} if code is None else {"code": code.digest}),
        "state": _state(operator, plan.max_parallelism),
        "children": list(node.all_children),
        "exchanges": list(node.all_edges),
        **({"producer": shape} if shape else {}),
        "text": [
            *operator.describes(),
            *_producer_text(shape),
            *described,
            *([f"late rows go to {', '.join(late)}"] if late else []),
            *marks,
        ],
        **({"late_rows_to": late} if late else {}),
        **({"counts_from": dict(begun)} if begun else {}),
    }


def _producer_text(shape: Mapping[str, str]) -> list[str]:
    return [f"producer: {', '.join(f'{name} {value}' for name, value in shape.items())}"] if shape else []


def _late_readers(node: Node, vertex: Vertex, plan: Plan) -> list[str]:
    """Returns the names of the operators that receive late rows."""
    way = node.sides.get(LATE)
    if way is None:
        return []
    chained = [vertex.nodes[child].operator.name for child in way.children]
    return [*chained, *(plan.edges[edge].downstream for edge in way.edges)]


def _state(operator: Operator, max_parallelism: int) -> str:
    if operator.origins():
        return "positions"
    states = operator.states(max_parallelism)
    if not states:
        return "none"
    return "keyed" if any(one.keyed for one in states) else "list"


def _edge(edge: Edge, plan: Plan) -> Explanation:
    return {
        "index": edge.index,
        "from": edge.upstream,
        "to": edge.downstream,
        **({"input": edge.alias} if edge.alias else {}),
        **({"replays_at": _find_reader(edge, plan)} if edge.retries else {}),
        "by": list(edge.keys) or "same slot",
        **({"comes_first": True} if edge.order.comes_first else {}),
        **({} if edge.order.ahead_ms is None else {"ahead_ms": edge.order.ahead_ms}),
        "columns": texts_of(edge.columns),
        "channels": plan.parallelism**2 if edge.keys else plan.parallelism,
    }


def _find_reader(edge: Edge, plan: Plan) -> str:
    return next(vertex for vertex in plan.vertices if vertex.id == edge.downstream).nodes[edge.node].operator.name


# -- text --------------------------------------------------------------------------------------------------------------


def render_explanation(explanation: Explanation) -> str:
    """Renders the explanation as text."""
    slots = explanation["parallelism"]
    guarantee, groups = explanation["guarantee"], explanation["max_parallelism"]
    plural = "s" if slots > 1 else ""
    lines = [f"pipeline {explanation['pipeline']}: {guarantee}, {slots} slot{plural}, {groups} key groups"]
    for vertex in explanation["vertices"]:
        lines += ["", f"{vertex['name']}  (subtasks {vertex['subtasks'][0]} .. {vertex['subtasks'][-1]})"]
        for edge in explanation["exchanges"]:
            if edge["to"] == vertex["name"]:
                lines.append(f"  <- {_edge_text(edge)}")
        lines += _tree(vertex["operators"], 0, "  ")
    if explanation["code"]:
        modules = (f"{path} ({render_count(size, 'character')})" for path, size in explanation["code"].items())
        lines += ["", f"modules that are sent to the slots: {', '.join(modules)}"]
    if explanation["files"]:
        files = (
            f"{name} {file['sha256'][:DIGEST_SHOWN]} ({render_count(file['bytes'], 'byte')})"
            for name, file in explanation["files"].items()
        )
        lines += ["", f"files that the slots fetch: {', '.join(files)}"]
    lines += ["", "settings"]
    width = max(len(setting["path"]) for setting in explanation["settings"])
    shown = {setting["path"]: render_value(setting["value"]) for setting in explanation["settings"]}
    value_width = min(40, max(map(len, shown.values())))
    for setting in explanation["settings"]:
        path, origin = setting["path"], setting["origin"]
        lines.append(f"  {path:<{width}}  {shown[path]:<{value_width}}  {origin}")
    replaced = explanation["replaced_texts"]
    if replaced:
        lines += ["", "text constants in which a variable was replaced (write `$${` for a literal `${`)"]
        lines += [f"  {one['path']}  {one['constant']}  {one['origin']}" for one in replaced]
    return "\n".join(lines)


def _edge_text(edge: Explanation) -> str:
    by = "in the same slot" if edge["by"] == "same slot" else f"by {', '.join(edge['by'])}"
    name = ""
    if "input" in edge:
        name = f"{edge['input']}: "
        if edge["by"] != "same slot":  # the key has the same type on all inputs
            by = f"by {render_columns((key, edge['columns'][key]) for key in edge['by'])}"
    order = ", comes first" if "comes_first" in edge else ""
    if "ahead_ms" in edge:
        order += f", at most {render_duration(edge['ahead_ms'])} ahead in event time"
    columns = render_columns(edge["columns"].items())
    if "replays_at" in edge:
        return f"{edge['from']} for {edge['replays_at']} ({edge['channels']} channels): {columns}"
    return f"{name}{edge['from']} {by} ({edge['channels']} channels){order}: {columns}"


def _tree(operators: list[Explanation], index: int, indent: str) -> list[str]:
    lines: list[str] = []
    waiting = [(index, indent)]
    while waiting:
        here, margin = waiting.pop()
        operator = operators[here]
        lines.append(f"{margin}{operator['kind']} {operator['name']}")
        lines += [f"{margin}    {line}" for line in operator["text"]]
        waiting += [(child, margin + "  ") for child in reversed(operator["children"])]
    return lines


def _find_replaced_texts(loaded: LoadedPipeline, expressions: Iterable[PlacedExpression]) -> Iterator[Explanation]:
    """Yields text constants as written in the file, in its order, with the names of their variables but not their
    values. The file may have meant a literal `${`.
    """
    for path in dict.fromkeys(one.path for one in expressions):
        text = loaded.place(path).interpolated
        if text is None:
            continue
        for token in derive_tokens(text.text):
            variables = text.derive_sources(token.start, token.end) if token.kind == "string" else ()
            if variables:
                yield {
                    "path": loaded.display(path),
                    "constant": text.derive_written(token.start, token.end),
                    "variables": list(variables),
                    "origin": loaded.origin(path),
                }
