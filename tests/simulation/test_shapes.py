"""The oracle of pipelines whose whole output is said in advance: it accepts what must come out, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.shapes.oracle import OracleHistory, ShapeOracle
from tidegate.simulation.shapes.registry import COMMON, JOINED, PYTHON, RARE, SHAPES, WINDOWED
from tidegate.simulation.shapes.shape import Content, DerivedShape, Produced, Step
from tidegate.simulation.timing import draw_timing
from tidegate.simulation.workload import InputRecord, plan_of
from tidegate.simulation.world import play

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1))
START_MS = 1_700_000_000_000
DERIVED = {name: shape for name, shape in SHAPES.items() if isinstance(shape, DerivedShape)}


def records_of(name: str, count: int = 120) -> list[InputRecord]:
    """Of a few keys, 20 ms apart, in two partitions."""
    return [
        InputRecord(
            place=PLACES[number % 2],
            id=number,
            customer=f"c{number % 2 + number % 4}",
            sku=f"s{number % 3}",
            quantity=number % 5 + 1,
            price_cents=number * 37 % 101,
            status="paid",
            at=DERIVED[name].time_of(number, START_MS + 20 * number),
        )
        for number in range(count)
    ]


class TwoInputs(DerivedShape):
    """A filter over each of two topics."""

    inputs = ("orders", "returns")
    outputs = ("sold", "returned")
    steps: ClassVar[Sequence[Step]] = [
        {"name": "sold", "from": "orders", "select": {"id": "id"}},
        {"name": "returned", "from": "returns", "select": {"id": "id"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_sold": {"from": "sold", "topic": "sold"},
        "to_returned": {"from": "returned", "topic": "returned"},
    }

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        return [
            Produced(
                "sold" if one.place.topic == "orders" else "returned",
                one.id,
                one.id,
                frozenset({one.id}),
                Content(None, {"id": one.id}),
            )
            for one in records
        ]

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {"records of returns": sum(one.topic == "returned" for one in produced)}


def oracle_of(name: str, *, exactly_once: bool = True, ordered: bool = True) -> ShapeOracle:
    return ShapeOracle(DERIVED[name], records_of(name), exactly_once=exactly_once, ordered=ordered)


def right(name: str) -> dict[str, list[list[Content]]]:
    """All that must come out, each topic in one partition."""
    shape = DERIVED[name]
    output: dict[str, list[list[Content]]] = {topic: [[]] for topic in shape.outputs}
    for one in shape.derive(records_of(name)):
        output[one.topic][0].append(one.content)
    return output


def check(name: str, *histories: OracleHistory) -> list[str]:
    return oracle_of(name).check(histories)


@pytest.mark.parametrize("name", DERIVED)
def test_what_must_come_out_is_accepted_and_complete(name: str) -> None:
    output, shape = right(name), DERIVED[name]
    assert check(name, OracleHistory(frozenset(), output)) == []
    names = {topic: {shape.name_of(topic, one) for one in output[topic][0]} for topic in shape.outputs}
    assert oracle_of(name).is_complete(frozenset(), names, names)
    assert all(output[topic][0] for topic in shape.outputs)


@pytest.mark.parametrize("name", DERIVED)
def test_a_record_that_is_lost_doubled_moved_or_changed_is_reported(name: str) -> None:
    topic = DERIVED[name].outputs[0]

    def changed(rows: Sequence[Content]) -> list[str]:
        return check(name, OracleHistory(frozenset(), {**right(name), topic: [list(rows)]}))

    rows = right(name)[topic][0]
    lane = [one for one in DERIVED[name].derive(records_of(name)) if one.topic == topic]
    same = [index for index, one in enumerate(lane) if one.lane == lane[0].lane]
    first, second = same[:2]
    swapped = list(rows)
    swapped[first], swapped[second] = rows[second], rows[first]
    assert changed(rows[1:])
    assert changed([*rows, rows[-1]])
    assert changed(swapped)
    assert changed([msgspec.structs.replace(rows[0], key=b"another"), *rows[1:]])
    assert changed([msgspec.structs.replace(rows[0], headers=(("more", None),)), *rows[1:]])


def test_a_lane_in_two_partitions_is_reported() -> None:
    rows = right("last")["lasts"][0]
    problems = check("last", OracleHistory(frozenset(), {"lasts": [rows[:5], rows[5:]]}))
    assert any("is in partitions" in problem for problem in problems)


def test_after_going_back_the_rest_comes_again_and_nothing_before_it() -> None:
    done = frozenset(range(60))
    rows = right("dedup")["firsts"][0]
    before = [one for one in rows if one.row is not None and one.row["id"] in done]
    after = [one for one in rows if one not in before]

    def problems(*outputs: Sequence[Content]) -> list[str]:
        first, second = ({"firsts": [list(output)]} for output in outputs)
        return check("dedup", OracleHistory(frozenset(), first), OracleHistory(done, second))

    assert problems(rows[:-2], after) == []
    assert any("came again" in one for one in problems(rows, [before[-1], *after]))
    assert any("are missing" in one for one in problems(rows, after[1:]))
    assert any("never come out" in one for one in problems(before[:-1], after))


def test_rows_that_waited_in_a_checkpoint_come_after_it() -> None:
    done = frozenset(range(60))
    rows = right("calls")["answers"][0]
    before = [one for one in rows if one.row is not None and one.row["id"] in done]
    after = [one for one in rows if one not in before]
    first, second = {"answers": [before[:-4]]}, {"answers": [before[-6:] + after]}
    assert check("calls", OracleHistory(frozenset(), first), OracleHistory(done, second)) == []
    lost = {"answers": [before[-3:] + after]}
    assert any(
        "are lost" in one for one in check("calls", OracleHistory(frozenset(), first), OracleHistory(done, lost))
    )


def test_at_least_once_a_record_may_come_again() -> None:
    rows = right("calls")["answers"][0]
    output = {"answers": [[*rows[:3], *rows]]}
    assert oracle_of("calls", exactly_once=False).check([OracleHistory(frozenset(), output)]) == []
    assert oracle_of("calls", exactly_once=False).check([OracleHistory(frozenset(), {"answers": [rows[1:]]})])


def test_the_words_of_every_shape_make_a_plan() -> None:
    for name, shape in SHAPES.items():
        timing = draw_timing(Random(1), single=True) if shape.windowed else None
        assert plan_of(name, 2, True, False, timing=timing).vertices
        assert not (shape.growing and shape.forgetful)


def test_seeds_draw_every_shape_and_retention_where_input_is_lost() -> None:
    drawn = [draw_schedule(seed) for seed in range(1000)]
    assert {one.workload.topology for one in drawn} == {*COMMON, *WINDOWED, *RARE, *JOINED, *PYTHON}
    for schedule in drawn:
        assert schedule.workload.shape.forgetful == any(fault.kind == "retention" for fault in schedule.faults)


def test_a_test_plays_a_shape_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two inputs; no product file knows of it."""
    monkeypatch.setitem(SHAPES, "two", TwoInputs())
    schedule = draw_schedule(2)
    workload = msgspec.structs.replace(
        schedule.workload,
        topology="two",
        timing=None,
        exactly_once=True,
        growing=False,
        bounded=False,
        changed="",
        locations=(),
    )
    with quiet():
        result = play(msgspec.structs.replace(schedule, workload=workload))
    assert not result.problems, tell(result, None)
    assert result.reach["schedules: two"] == 1
    assert result.reach["records of returns"]
