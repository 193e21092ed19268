"""What Tidegate makes of a pipeline file, for people and programs: graph, exchanges, state, settings, origins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from tidegate.config.load import LoadedPipeline
from tidegate.config.models import PipelineSettings, Settings
from tidegate.config.values import Path
from tidegate.datatypes import DataType
from tidegate.expressions.expression import text_of
from tidegate.plan.graph import (
    AggregateOperator,
    Columns,
    Edge,
    FilterOperator,
    Node,
    Operator,
    Plan,
    SelectOperator,
    SinkOperator,
    SourceOperator,
    Vertex,
)
from tidegate.settings.fields import GiveUp, Unaligned
from tidegate.settings.secrets import REDACTED
from tidegate.settings.units import render_duration

Explanation = dict[str, Any]
"""Plain values, ready for JSON; without secrets."""


def derive_explanation(loaded: LoadedPipeline, plan: Plan) -> Explanation:
    """The whole explanation of a pipeline."""
    return {
        "pipeline": plan.pipeline,
        "guarantee": "exactly-once" if plan.exactly_once else "at-least-once",
        "parallelism": plan.parallelism,
        "max_parallelism": plan.max_parallelism,
        "vertices": [_vertex(vertex, plan) for vertex in plan.vertices],
        "exchanges": [_edge(edge, plan) for edge in plan.edges],
        "settings": [
            {"path": ".".join(map(str, path)), "value": _shown(value), "origin": loaded.origin(path)}
            for path, value in _settings(loaded.settings)
        ],
    }


def _vertex(vertex: Vertex, plan: Plan) -> Explanation:
    return {
        "name": vertex.id,
        "subtasks": [f"{vertex.id}[{index}]" for index in range(plan.parallelism)],
        "operators": [_node(node) for node in vertex.nodes],
    }


def _node(node: Node) -> Explanation:
    operator = node.operator
    return {
        "name": operator.name,
        "kind": type(operator).__name__.removesuffix("Operator").lower(),
        **_details(operator),
        "state": _state(operator),
        "children": list(node.children),
        "exchanges": list(node.edges),
    }


def _details(operator: Operator) -> Explanation:
    """What an operator does; its Kafka properties are left out, they may hold secrets."""
    match operator:
        case SourceOperator():
            start = (
                operator.start if isinstance(operator.start, str) else {str(k): v for k, v in operator.start.items()}
            )
            return {
                "topics": list(operator.topics),
                "format": operator.format,
                "start": start,
                "until": operator.until,
                "bad_records": operator.bad_records,
                "reads": _columns(operator.output),
            }
        case FilterOperator():
            return {"where": text_of(operator.predicate), "bad_records": operator.bad_records}
        case SelectOperator():
            texts = {name: text_of(expression) for name, expression in operator.columns}
            return {"select": texts, "output": _columns(operator.output), "bad_records": operator.bad_records}
        case AggregateOperator():
            calls = {
                name: f"{call.function}({'*' if call.argument is None else text_of(call.argument)})"
                for name, call in operator.aggregates
            }
            output = _columns(operator.output)
            return {"key": list(operator.keys), "aggregate": calls, "emit": operator.emit, "output": output}
        case SinkOperator():
            written = {"columns": _columns(operator.columns), "key": operator.key, "timestamp": operator.timestamp}
            return {
                "topic": operator.topic,
                "format": operator.format,
                **written,
                "bad_records": operator.bad_records,
            }
    return {"output": _columns(operator.output)}


def _columns(columns: Columns) -> dict[str, str]:
    return {name: str(kind) for name, kind in columns}


def _state(operator: Operator) -> str:
    match operator:
        case SourceOperator():
            return "positions"
        case AggregateOperator():
            return "keyed"
    return "none"


def _edge(edge: Edge, plan: Plan) -> Explanation:
    return {
        "index": edge.index,
        "from": edge.upstream,
        "to": edge.downstream,
        "by": list(edge.keys) or "same slot",
        "columns": _columns(edge.columns),
        "channels": plan.parallelism**2 if edge.keys else plan.parallelism,
    }


# -- settings ----------------------------------------------------------------------------------------------------------


def _settings(settings: PipelineSettings) -> Iterator[tuple[Path, object]]:
    """Every setting, the derived default of the Spark master included."""
    master: Path = ("spark", "master")
    if "master" not in settings.spark:
        yield master, settings.spark_master
    yield from _leaves(settings, ())


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    """Every setting with a value; steps are told by the graph."""
    if isinstance(value, Settings):
        for name, info in type(value).model_fields.items():
            item = getattr(value, name)
            if item is not None and not (name == "steps" and isinstance(value, PipelineSettings)):
                yield from _leaves(_timed(name, item), (*path, info.alias or name))
    elif isinstance(value, Mapping) and path[-1:] != ("start",):
        for name, item in value.items():
            yield from _leaves(item, (*path, name))
    else:
        yield path, value


def _timed(name: str, value: object) -> object:
    return render_duration(value) if name.endswith("_ms") and isinstance(value, int) else value


def _shown(value: object) -> Any:
    match value:
        case SecretStr():
            return REDACTED
        case GiveUp():
            return f"{value.failures} in {render_duration(value.within_ms)}"
        case DataType() | Unaligned():
            return str(value)
        case tuple():
            return list(value)
        case Mapping():
            return {str(name): item for name, item in value.items()}
    return value


# -- text --------------------------------------------------------------------------------------------------------------


def render_explanation(explanation: Explanation) -> str:
    """The explanation as text."""
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
    lines += ["", "settings"]
    width = max(len(setting["path"]) for setting in explanation["settings"])
    shown = {setting["path"]: _value_text(setting["value"]) for setting in explanation["settings"]}
    value_width = min(40, max(map(len, shown.values())))
    for setting in explanation["settings"]:
        path, origin = setting["path"], setting["origin"]
        lines.append(f"  {path:<{width}}  {shown[path]:<{value_width}}  {origin}")
    return "\n".join(lines)


def _edge_text(edge: Explanation) -> str:
    by = "in the same slot" if edge["by"] == "same slot" else f"by {', '.join(edge['by'])}"
    return f"{edge['from']} {by} ({edge['channels']} channels): {_list_text(edge['columns'])}"


def _tree(operators: list[Explanation], index: int, indent: str) -> list[str]:
    lines: list[str] = []
    waiting = [(index, indent)]
    while waiting:
        here, margin = waiting.pop()
        operator = operators[here]
        lines.append(f"{margin}{operator['kind']} {operator['name']}")
        lines += [f"{margin}    {line}" for line in _detail_lines(operator)]
        waiting += [(child, margin + "  ") for child in reversed(operator["children"])]
    return lines


def _detail_lines(operator: Explanation) -> Iterator[str]:
    if "topics" in operator:
        topics = ", ".join(operator["topics"])
        yield f"topics {topics}; {operator['format']}; from {operator['start']} until {operator['until']}"
        yield f"reads {_list_text(operator['reads'])}; bad records: {operator['bad_records']}"
    if "where" in operator:
        yield f"where {operator['where']}"
    for name, text in operator.get("select", {}).items():
        yield f"{name} = {text}"
    for name, text in operator.get("aggregate", {}).items():
        yield f"{name} = {text}"
    if "aggregate" in operator:
        yield f"keyed state by {', '.join(operator['key'])}; emit {operator['emit']}"
    if "topic" in operator:
        key = f"; key {operator['key']}" if operator["key"] else ""
        timestamp = f"; timestamp {operator['timestamp']}" if operator["timestamp"] else ""
        yield f"topic {operator['topic']}; {operator['format']}{key}{timestamp}"
        yield f"writes {_list_text(operator['columns'])}"


def _list_text(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _value_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
