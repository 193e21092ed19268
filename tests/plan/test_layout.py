"""Properties of every picture of a plan."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator

import pytest

from tests.depth import DEPTH
from tests.testing.pipelines import HEAD
from tidegate.config.draft import SAMPLE
from tidegate.config.load import parse_pipeline
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.plan.layout import (
    LAYER_GAP,
    MARGIN,
    ROW_GAP,
    Layout,
    PlacedEdge,
    PlacedStep,
    PlacedVertex,
    Point,
    derive_layout,
)

LETTERS = "dead_letters: {topic: dead, retry_topic: again}\n"
SOURCE = "{{topic: {name}, schema: {{id: bigint, amount: bigint}}, bad_records: {policy}}}"


def plan_of(text: str) -> Plan:
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    return build_plan(loaded)


def draw_plan(draw: random.Random, count: int) -> Plan:
    """Draws steps that filter, exchange rows and unite inputs; what nothing reads leads to a sink."""
    policy = draw.choice(["fail", "dead-letter"])
    sources = [f"s{index}" for index in range(draw.randint(1, 3))]
    steps: list[str] = []
    unread = set(sources)
    for index in range(count):
        known = [*sources, *(f"t{one}" for one in range(index))]
        kind = draw.choice(["filter", "exchange", "union"])
        inputs = draw.sample(known[-8:], min(len(known[-8:]), draw.randint(2, 4) if kind == "union" else 1))
        what = "key: id, aggregate: {amount: sum(amount)}" if kind == "exchange" else "where: id > 0"
        steps.append(f"  - {{name: t{index}, from: [{', '.join(inputs)}], {what}}}\n")
        unread = unread - {*inputs} | {f"t{index}"}
    sinks = "".join(f"  k{name}: {{from: {name}, topic: {name}, key: id}}\n" for name in sorted(unread))
    lines = "".join(f"  {name}: {SOURCE.format(name=name, policy=policy)}\n" for name in sources)
    letters = LETTERS if policy == "dead-letter" else ""
    return plan_of(f"{HEAD}{letters}sources:\n{lines}steps:\n{''.join(steps)}sinks:\n{sinks}")


def plans() -> Iterator[Plan]:
    """Yields the plan of the sample and plans that are drawn."""
    yield plan_of(SAMPLE)
    for seed in range(12 * DEPTH):
        print(f"seed {seed}")
        draw = random.Random(seed)
        yield draw_plan(draw, draw.randint(1, 24))


def overlapping(boxes: Iterable[PlacedStep | PlacedVertex]) -> list[tuple[object, object]]:
    return [
        (one, other)
        for one, other in itertools.combinations(boxes, 2)
        if one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    ]


def crosses(edge: PlacedEdge, box: PlacedStep) -> bool:
    """Tells whether a line runs through the inside of a step."""
    return any(
        max(x, box.x) < min(to_x, box.x + box.width) and _between(box, (x, y), (to_x, to_y))
        for (x, y), (to_x, to_y) in itertools.pairwise(edge.points)
    )


def _between(box: PlacedStep, start: Point, end: Point) -> bool:
    low, high = sorted((start[1], end[1]))
    return low < box.y + box.height and high > box.y


def test_boxes_do_not_overlap_and_lines_lead_to_the_right_round_them() -> None:
    for plan in plans():
        layout = derive_layout(plan)
        assert overlapping(layout.nodes) == []
        assert overlapping(layout.vertices) == []
        for edge in layout.edges:
            assert all(x <= to_x for (x, _), (to_x, _) in itertools.pairwise(edge.points)), edge
            assert [box.step for box in layout.nodes if crosses(edge, box)] == [], edge


def test_a_picture_has_every_operator_in_its_vertex_and_every_edge_between_its_ends() -> None:
    for plan in plans():
        layout = derive_layout(plan)
        steps = {box.step: box for box in layout.nodes}
        boxes = {box.name: box for box in layout.vertices}
        for vertex in plan.vertices:
            for node in vertex.nodes:
                assert inside(steps[node.operator.name], boxes[vertex.id])
        assert len(layout.edges) == len(plan.edges) + sum(len(node.all_children) for node in plan.nodes)
        for edge in layout.edges:
            begins, ends = steps[edge.source], steps[edge.target]
            if edge.output == "":
                assert edge.points[0] == (begins.x + begins.width, begins.y + begins.height // 2)
                assert edge.points[-1][0] == ends.x
                assert ends.y < edge.points[-1][1] < ends.y + ends.height


def inside(step: PlacedStep, vertex: PlacedVertex) -> bool:
    across = vertex.x < step.x and step.x + step.width < vertex.x + vertex.width
    return across and vertex.y < step.y and step.y + step.height < vertex.y + vertex.height


def test_a_picture_is_not_larger_than_its_boxes_need() -> None:
    for plan in plans():
        layout = derive_layout(plan)
        everything: list[PlacedStep | PlacedVertex] = [*layout.nodes, *layout.vertices]
        assert min(box.x for box in everything) >= 0
        assert min(box.y for box in everything) >= 0
        assert max(box.x + box.width for box in everything) <= layout.width
        assert max(box.y + box.height for box in everything) <= layout.height
        assert all(0 <= y <= layout.height and x <= layout.width for edge in layout.edges for x, y in edge.points)
        lanes = 20 * len(layout.vertices) * len(layout.vertices)
        assert layout.height <= sum(box.height + ROW_GAP for box in layout.vertices) + lanes
        assert layout.width <= sum(box.width + LAYER_GAP for box in layout.vertices) + 2 * MARGIN


def test_the_same_plan_has_the_same_picture() -> None:
    plan = draw_plan(random.Random(5), 20)
    assert derive_layout(plan) == derive_layout(plan)


def crossings(layout: Layout) -> int:
    """Counts the pairs of lines that cross, of edges without a common end."""
    lines = [(edge, line) for edge in layout.edges for line in itertools.pairwise(edge.points)]
    return sum(
        {one.source, one.target}.isdisjoint({other.source, other.target}) and _cross(*line, *line_of_other)
        for (one, line), (other, line_of_other) in itertools.combinations(lines, 2)
    )


def _cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    def side(p: Point, q: Point, r: Point) -> int:
        turn = (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
        return (turn > 0) - (turn < 0)

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def test_lines_that_need_not_cross_do_not() -> None:
    """The readers are in another order in the file than what they read."""
    names = [*"abcdef"]
    sources = "".join(f"  {name}: {SOURCE.format(name=name, policy='fail')}\n" for name in names)
    steps = "".join(
        f"  - {{name: t{name}, from: {name}, key: id, aggregate: {{amount: sum(amount)}}}}\n" for name in names[::-1]
    )
    sinks = "".join(f"  k{name}: {{from: t{name}, topic: t{name}, key: id}}\n" for name in "cafdbe")
    assert crossings(derive_layout(plan_of(f"{HEAD}sources:\n{sources}steps:\n{steps}sinks:\n{sinks}"))) == 0


@pytest.mark.slow
def test_two_hundred_steps_take_less_than_a_second() -> None:
    plan = draw_plan(random.Random(7), 200)
    assert len(list(plan.nodes)) > 200
    begun = time.process_time()
    layout = derive_layout(plan)
    assert time.process_time() - begun < 1.0
    assert overlapping(layout.vertices) == []
