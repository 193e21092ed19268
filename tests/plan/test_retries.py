"""The retry topic in the plan: where its rows return to, what does not change by it, and which letters fit."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from tidegate.config.load import parse_pipeline
from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY, RetryOperator
from tidegate.plan.build import check_pipeline
from tidegate.plan.clusters import derive_origins
from tidegate.plan.gates import derive_gates, derive_leads
from tidegate.plan.graph import Plan, derive_edge_names, derive_former_plan
from tidegate.plan.growth import derive_batch_limits
from tidegate.plan.replays import Replays, Route
from tidegate.plan.state_fingerprints import derive_fingerprints

TEXT = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
sources:
  orders: {topic: orders, schema: {id: bigint, n: int, at: timestamp}, event_time: at, bad_records: dead-letter}
  prices: {topic: prices, schema: {id: bigint, price: double}, bad_records: dead-letter}
steps:
  - {name: big, from: orders, where: n > 1}
  - {name: kept, from: prices, table: {key: id}}
  - {name: priced, from: big, lookup: kept, on: {id: id}, add: {price: kept.price}}
  - {name: sums, from: priced, key: id, window: {tumbling: 1h}, aggregate: {total: max(n)}}
  - {name: halves, from: sums, select: {id: id, half: 10 div total}}
sinks:
  out: {from: halves, topic: out, key: id}
dead_letters: {topic: dead, RETRY}
"""


def plan_of(*, retry: str = "retry_topic: again", text: str = TEXT) -> Plan:
    loaded = parse_pipeline(text.replace("RETRY", retry), "p.yaml", {})
    assert not loaded.problems, loaded.problems
    checked = check_pipeline(loaded)
    assert checked.plan is not None, checked.problems
    return checked.plan


def retry_of(plan: Plan) -> RetryOperator:
    (found,) = plan.operators(RetryOperator)
    return found


def test_every_step_and_sink_with_dead_letters_gets_its_rows_back_on_the_input_where_they_failed() -> None:
    plan = plan_of()
    found = {(one.step, one.port) for one in retry_of(plan).inputs}
    assert {("big", 0), ("priced", 0), ("priced", 1), ("sums", 0), ("halves", 0), ("out", 0)} <= found
    assert not {name for name, _ in found} & {"orders", "prices", RETRY, "dead_letters", "dead_letters.bytes"}
    edges = {reader_of(plan, edge.index): edge for edge in plan.edges if edge.retries}
    assert edges[OperatorName("sums")].keys == ("id",), "rows of a step by key go to the slot of their key"
    assert edges[OperatorName("halves")].keys, (
        "an edge without key would forbid barriers to overtake in front of the totals"
    )
    assert edges[OperatorName("big")].keys == (), "in the slot, into the vertex of the source"
    assert dict(edges[OperatorName("sums")].columns).keys() == {"id", "n"}


def reader_of(plan: Plan, index: int) -> OperatorName:
    edge = plan.edges[index]
    (vertex,) = (one for one in plan.vertices if one.id == edge.downstream)
    return vertex.nodes[edge.node].operator.name


def test_nothing_else_of_the_plan_changes() -> None:
    """No chain is cut, no state has another meaning, no batch another size."""
    plan, without = plan_of(), plan_of(retry="max_per_minute: 1000")
    vertices = {vertex.id: [node.operator.name for node in vertex.nodes] for vertex in plan.vertices}
    assert vertices.pop(plan.vertices[0].id) == [RETRY]
    assert vertices == {vertex.id: [node.operator.name for node in vertex.nodes] for vertex in without.vertices}
    assert derive_fingerprints(plan) == derive_fingerprints(without)
    origins, before = derive_origins(plan), derive_origins(without)
    changed = {name for name, topics in before.items() if origins[name] != topics}
    assert changed == {"dead_letters", "dead_letters.bytes"}
    assert [gate.awaited for gate in derive_gates(plan)] == [gate.awaited for gate in derive_gates(without)]
    assert derive_leads(plan) == derive_leads(without)
    for vertex in without.vertices:
        (same,) = (one for one in plan.vertices if one.id == vertex.id)
        assert derive_batch_limits(plan, same) == derive_batch_limits(without, vertex)
    names = derive_edge_names(plan)
    assert len({*names.values()}) == len(plan.edges)
    assert {*derive_edge_names(without).values()} < {*names.values()}
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_rows_for_a_lookup_wait_for_its_table() -> None:
    (gate,) = derive_gates(plan_of())
    assert RETRY in gate.held
    assert RETRY not in gate.awaited


def test_the_source_ends_if_all_others_end() -> None:
    assert retry_of(plan_of()).until == "never"
    bounded = TEXT.replace("bad_records", "until: latest, bad_records")
    assert retry_of(plan_of(text=bounded)).until == "latest"


def test_the_edges_of_a_renamed_step_had_its_former_name() -> None:
    plan = plan_of(
        text=TEXT.replace("name: halves,", "name: parts, was: halves,").replace("from: halves", "from: parts")
    )
    former = derive_former_plan(plan, {OperatorName("parts"): OperatorName("halves")})
    assert sorted(derive_edge_names(former).values()) == sorted(derive_edge_names(plan_of()).values())


ROW = {"id": 1, "n": 2, "__tidegate_time": 5, "__tidegate_behind": 0}
TYPES = {"id": "bigint", "n": "int", "__tidegate_time": "bigint", "__tidegate_behind": "bigint"}


def letter_of(
    step: str,
    row: Mapping[str, object] | None = None,
    types: Mapping[str, str] | None = None,
    port: bytes | None = b"0",
    *more: tuple[str, bytes],
) -> DeadLetter:
    about = {
        letters.KIND: b"X",
        letters.STEP: step.encode(),
        letters.TOPIC: b"orders",
        letters.PARTITION: b"0",
        letters.OFFSET: b"7",
        letters.BYTES: b"original",
        letters.ROW: json.dumps(dict(ROW if row is None else row)).encode(),
        letters.ROW_TYPES: json.dumps(dict(TYPES if types is None else types)).encode(),
        **({} if port is None else {letters.PORT: port}),
    }
    found = read_dead_letter(0, 0, None, None, b"", [(letters.HEADERS, b"0"), *about.items(), *more])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("letter", "obstacle"),
    [
        (letter_of("sums"), ""),
        (letter_of("sums", {**ROW, "x": 1}, {**TYPES, "x": "date"}), ""),
        (letter_of("gone"), "`gone` is no longer a step or sink with dead letters"),
        (
            letter_of("sums", {"id": 1}, {"id": "bigint"}),
            "`sums` needs the column `n` int, which the row does not have",
        ),
        (
            letter_of("sums", ROW, {**TYPES, "n": "string"}),
            "the column `n` of `sums` is now int; in the row it is string",
        ),
        (
            letter_of("sums", {"id": 1, "n": 2}, {"id": "bigint", "n": "int"}),
            "`sums` needs event time, which the row does not have",
        ),
        (letter_of("sums", port=None), "its row is a result of `sums`, which cannot be computed again"),
        (letter_of("sums", port=b"4"), "`sums` no longer has an input 4"),
        (
            letter_of("sums", None, None, b"0", (letters.ROW_MASKED, b"1")),
            "its row contained a secret, which is replaced",
        ),
        (
            letter_of("big", {**ROW, "at": None}, {**TYPES, "at": "timestamp"}, b"0", (letters.TOPIC, b"old")),
            "`big` no longer has rows of topic old, only of orders",
        ),
    ],
)
def test_a_letter_fits_the_step_as_it_is_now_or_is_told_why_not(letter: DeadLetter, obstacle: str) -> None:
    retry = retry_of(plan_of())
    found = retry.fit(letter)
    assert found.obstacle == obstacle
    assert (found.input is None) == bool(obstacle)


def test_a_letter_of_a_renamed_step_is_for_the_step_as_it_is_called_now() -> None:
    plan = plan_of(text=TEXT.replace("name: sums,", "name: totals, was: sums,").replace("from: sums", "from: totals"))
    found = retry_of(plan).fit(letter_of("sums"))
    assert found.input is not None
    assert found.input.step == "totals"


def test_a_map_fits_as_the_array_of_its_entries_that_a_letter_shows() -> None:
    plan = plan_of(text=TEXT.replace("n: int, at", "n: int, m: 'map<string, int>', at"))
    (wanted,) = (one for one in retry_of(plan).inputs if one.step == "big")
    wanted = msgspec.structs.replace(wanted, columns=(*wanted.columns, ("m", dict(source_columns(plan))["m"])))
    types = {**TYPES, "at": "timestamp", "m": "array<struct<key: string, value: int>>"}
    row: dict[str, object] = {**ROW, "at": None, "m": []}
    assert wanted.find_obstacle(letter_of("big"), row, types) == ""


def source_columns(plan: Plan) -> tuple[tuple[str, object], ...]:
    return next(one.columns for one in plan.operators(SourceOperator) if one.name == "orders")


def test_a_letter_of_a_source_is_written_to_its_topic_and_all_others_continue() -> None:
    replays = Replays(plan_of())
    assert replays.route(letter_of("sums")) == Route("again")
    assert replays.route(letter_of("orders", port=None)) == Route()
    assert replays.route(letter_of("gone")).obstacle
    without = Replays(plan_of(retry="max_per_minute: 1000"))
    assert without.route(letter_of("sums")) == Route()


def test_a_row_returns_only_where_rows_of_its_topic_come_from_its_cluster() -> None:
    text = TEXT.replace("checkpoints:", "clusters: {us: {bootstrap.servers: us:9092}}\ncheckpoints:")
    text = text.replace("{topic: dead,", "{topic: dead, cluster: us,").replace(
        "topic: prices", "topic: orders, cluster: us"
    )
    plan = plan_of(text=text)
    retry = retry_of(plan)
    assert retry.names_topic
    assert retry.names_cluster
    row, types = {**ROW, "at": None}, {**TYPES, "at": "timestamp"}
    assert not retry.fit(letter_of("big", row, types)).obstacle
    far = letter_of("big", row, types, b"0", (letters.CLUSTER, b"us"))
    assert retry.fit(far).obstacle == "`big` no longer has rows of topic orders in us, only of orders"
    assert Replays(plan).route(letter_of("sums")) == Route("again"), "the retry topic is in the cluster of the letters"


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        ("dead", "`dead` is also the topic of the dead letters"),
        ("orders", "`orders` is read by `orders`"),
        ("out", "`out` is written by the sink `out`"),
    ],
)
def test_the_retry_topic_is_used_by_nothing_else(topic: str, told: str) -> None:
    loaded = parse_pipeline(TEXT.replace("RETRY", f"retry_topic: {topic}"), "p.yaml", {})
    checked = check_pipeline(loaded)
    assert any(told in problem.message for problem in checked.problems), checked.problems
