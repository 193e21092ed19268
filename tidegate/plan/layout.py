"""Where the operators and edges of a plan are in its picture: a layered layout from left to right. Pure.

A vertex is a box with its tree of operators. Boxes are in layers by longest path, so every edge leads to the right. An
edge that passes a layer has a *lane* in it: a thin place that no box takes. All edges of one output share their lanes,
and so do edges of dead letters to one reader. Lengths are in pixels.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean
from typing import Final

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.spec import DEAD
from tidegate.plan.graph import RETRY_VERTEX, Edge, Plan, Vertex

STEP_WIDTH: Final = 176
STEP_HEIGHT: Final = 102
STEP_GAP: Final = 28
"""Between a step and the next of its vertex."""
ROW_GAP: Final = 16
LAYER_GAP: Final = 48
LANE_HEIGHT: Final = 4
EXIT_GAP: Final = 14
"""Between lines that leave a step."""
PADDING: Final = 10
"""Between the border of a vertex and its steps."""
MARGIN: Final = 8
SWEEPS: Final = 12

Point = tuple[int, int]
_Key = tuple[str, str]
"""What the edges of one line have in common: their node and output, or `DEAD` and the vertex that they lead to."""
_REPLAYS: Final = (RETRY_VERTEX, "replays")


class PlacedStep(msgspec.Struct, frozen=True):
    """The place of an operator."""

    step: OperatorName
    x: int
    y: int
    width: int = STEP_WIDTH
    height: int = STEP_HEIGHT


class PlacedVertex(msgspec.Struct, frozen=True):
    """The box around the operators of a vertex."""

    name: VertexId
    x: int
    y: int
    width: int
    height: int


class PlacedEdge(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """The line from an operator to another one, with the points where it bends.

    Lines of dead letters begin, and lines of replayed dead letters end, at the border of the vertex.
    """

    source: OperatorName
    target: OperatorName
    port: int
    output: str
    """The side output that it leaves from; empty for the main one."""
    exchanged: bool
    """Whether its rows are re-partitioned by key, so that they may go to another slot."""
    points: tuple[Point, ...]


class Layout(msgspec.Struct, frozen=True):
    """The picture of a plan."""

    width: int
    height: int
    nodes: tuple[PlacedStep, ...]
    edges: tuple[PlacedEdge, ...]
    vertices: tuple[PlacedVertex, ...]


@dataclass(slots=True)
class _Item:
    """A box or a lane in its layer, with the lines to the layers before and after it."""

    height: int
    y: float = 0.0
    before: list[_Link] = field(default_factory=list)
    after: list[_Link] = field(default_factory=list)

    def link(self, height: int, other: _Item, height_there: int) -> None:
        """Adds a line to an item of the next layer."""
        self.after.append((height, other, height_there))
        other.before.append((height_there, self, height))


_Link = tuple[int, _Item, int]
"""A line: its height in an item, the other item, and its height there."""


@dataclass(slots=True)
class _Box:
    """A vertex; `places` are those of its nodes in the box, `exits` where lines leave it: the height by their key."""

    vertex: Vertex
    places: dict[int, Point]
    exits: dict[_Key, int]
    width: int
    item: _Item
    ports: int
    layer: int = 0


@dataclass(frozen=True, slots=True)
class _Way:
    """An edge, and the output of a node that it leaves from."""

    edge: Edge
    node: int
    name: OperatorName
    output: str

    @property
    def key(self) -> _Key:
        """The key of the line to which it belongs."""
        if self.edge.retries:
            return _REPLAYS
        return (DEAD, self.edge.downstream) if self.output == DEAD else (self.name, self.output)


def derive_layout(plan: Plan) -> Layout:
    """Returns the layout of a plan; the same plan always has the same one."""
    ways = tuple(_derive_ways(plan))
    boxes = {vertex.id: _derive_box(vertex, ways) for vertex in plan.vertices}
    _assign_layers(boxes, plan.edges)
    layers: list[list[_Item]] = [[] for _ in range(1 + max(box.layer for box in boxes.values()))]
    for box in boxes.values():
        layers[box.layer].append(box.item)
    lanes = _add_lanes(boxes, ways, layers)
    _arrange(layers)
    columns = _derive_columns(boxes.values(), len(layers))
    edges = (*_place_inner(boxes.values(), columns), *_place_outer(boxes, ways, lanes, columns))
    return Layout(
        width=columns[-1][1] + MARGIN,
        height=int(max(item.y + item.height for layer in layers for item in layer)) + MARGIN,
        nodes=tuple(
            PlacedStep(node.operator.name, *_at(box, columns, box.places[index]))
            for box in boxes.values()
            for index, node in enumerate(box.vertex.nodes)
        ),
        edges=edges,
        vertices=tuple(
            PlacedVertex(name, *_at(box, columns, (0, 0)), box.width, box.item.height) for name, box in boxes.items()
        ),
    )


def _derive_ways(plan: Plan) -> Iterator[_Way]:
    """Yields every edge once: several nodes of a vertex may share one for their dead letters."""
    found: set[int] = set()
    for vertex in plan.vertices:
        for index, node in enumerate(vertex.nodes):
            for output, way in node.outputs.items():
                new = [edge for edge in way.edges if edge not in found]
                yield from (_Way(plan.edges[edge], index, node.operator.name, output) for edge in new)
                found.update(new)


# -- inside a vertex ---------------------------------------------------------------------------------------------------


def _derive_box(vertex: Vertex, every: Sequence[_Way]) -> _Box:
    """Places the nodes of a vertex: the first child to the right of its parent, the others and edges in rows below."""
    ways = [way for way in every if way.edge.upstream == vertex.id]
    of_node: dict[int, list[_Key]] = {}
    for way in ways:
        if way.output != DEAD and way.key not in of_node.setdefault(way.node, []):
            of_node[way.node].append(way.key)
    places: dict[int, Point] = {}
    exits: dict[_Key, int] = {}
    free = PADDING  # where the next row begins
    waiting: list[tuple[int, int, int | None]] = [(0, PADDING, PADDING)]
    while waiting:
        index, x, y = waiting.pop()
        if index in places:  # its children are placed
            first = places[index][1] + STEP_HEIGHT // 2 if not vertex.nodes[index].all_children else free + ROW_GAP
            exits |= {key: first + row * EXIT_GAP for row, key in enumerate(of_node[index])}
            free = max(free, first + len(of_node[index]) * EXIT_GAP - EXIT_GAP // 2)
            continue
        y = free + ROW_GAP if y is None else y
        places[index], free = (x, y), max(free, y + STEP_HEIGHT)
        if index in of_node:
            waiting.append((index, x, None))
        next_x = x + STEP_WIDTH + STEP_GAP
        children = vertex.nodes[index].all_children
        waiting += [(child, next_x, y if child == children[0] else None) for child in reversed(children)]
    height = free + PADDING
    exits |= {way.key: height - PADDING // 2 for way in ways if way.output == DEAD}
    width = max(x for x, _ in places.values()) + STEP_WIDTH + PADDING
    ports = max((way.edge.port + 1 for way in every if way.edge.downstream == vertex.id), default=1)
    return _Box(vertex, places, exits, width, _Item(height), ports)


# -- between vertices --------------------------------------------------------------------------------------------------


def _assign_layers(boxes: Mapping[VertexId, _Box], edges: Sequence[Edge]) -> None:
    """Assigns layers by longest path; vertices without inputs are as far to the right as their readers permit."""
    for name, box in boxes.items():
        box.layer = max((boxes[edge.upstream].layer + 1 for edge in edges if edge.downstream == name), default=0)
    fed = {edge.downstream for edge in edges}
    for name, box in boxes.items():
        if name not in fed:
            box.layer = min((boxes[edge.downstream].layer - 1 for edge in edges if edge.upstream == name), default=0)


def _add_lanes(
    boxes: Mapping[VertexId, _Box], ways: Iterable[_Way], layers: list[list[_Item]]
) -> dict[tuple[_Key, int], _Item]:
    """Adds the lanes of all edges and links everything; returns the lanes by key and layer."""
    lanes: dict[tuple[_Key, int], _Item] = {}
    linked: set[tuple[int, int, int]] = set()
    for way in ways:
        source, target = boxes[way.edge.upstream], boxes[way.edge.downstream]
        here, height = source.item, source.exits[way.key]
        for layer in range(source.layer + 1, target.layer + 1):
            last = layer == target.layer
            if not last and (way.key, layer) not in lanes:
                lanes[way.key, layer] = _Item(LANE_HEIGHT)
                layers[layer].append(lanes[way.key, layer])
            there, height_there = (
                (target.item, _derive_entry(target, way)) if last else (lanes[way.key, layer], LANE_HEIGHT // 2)
            )
            if (id(here), id(there), height_there) not in linked:
                linked.add((id(here), id(there), height_there))
                here.link(height, there, height_there)
            here, height = there, height_there
    return lanes


def _derive_entry(target: _Box, way: _Way) -> int:
    """Returns the height in a box at which an edge enters it."""
    if way.edge.retries:
        return target.item.height - PADDING // 2
    return PADDING + STEP_HEIGHT * (way.edge.port + 1) // (target.ports + 1)


def _arrange(layers: Sequence[list[_Item]]) -> None:
    """Orders each layer by the mean height of its neighbours, to and fro; the order with fewest crossings counts."""
    for layer in layers:
        _place(layer, [0.0] * len(layer))
    best, fewest = [list(layer) for layer in layers], _count_crossings(layers)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            keys = {id(item): _derive_center(item.before if sweep % 2 == 0 else item.after, item) for item in layer}
            layer.sort(key=lambda item: keys[id(item)])
            _place(layer, [_derive_wanted(item.before if sweep % 2 == 0 else item.after, item) for item in layer])
        crossings = _count_crossings(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order
    for _ in range(SWEEPS):  # the order is known: straighten the lines
        for layer in (*layers, *reversed(layers)):
            _place(layer, [_derive_wanted([*item.before, *item.after], item) for item in layer])
    top = min(item.y for layer in layers for item in layer) - MARGIN
    for item in (item for layer in layers for item in layer):
        item.y = round(item.y - top)


def _derive_center(links: Sequence[_Link], item: _Item) -> float:
    """Returns the mean height of the other ends of lines."""
    return fmean(other.y + there for _, other, there in links) if links else item.y + item.height / 2


def _derive_wanted(links: Sequence[_Link], item: _Item) -> float:
    """Returns where an item has to be for lines that are as level as possible."""
    return fmean(other.y + there - here for here, other, there in links) if links else item.y


def _place(layer: Sequence[_Item], wanted: Sequence[float]) -> None:
    """Places the items of a layer in their order, as near to the wanted places as possible (isotonic regression)."""
    starts = [0, *accumulate(item.height + ROW_GAP for item in layer)]
    groups: list[list[float]] = []  # of items that touch: their places without what is above them in the group
    for start, place in zip(starts, wanted, strict=False):
        groups.append([place - start])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [fmean(group) for group in groups for _ in group]
    for item, start, place in zip(layer, starts, places, strict=False):
        item.y = place + start


def _count_crossings(layers: Sequence[Sequence[_Item]]) -> int:
    crossings = 0
    for layer in layers:
        lines = sorted((item.y + here, other.y + there) for item in layer for here, other, there in item.after)
        ends: list[float] = []  # of the lines that begin above
        for _, end in lines:
            place = bisect.bisect_right(ends, end)
            crossings += len(ends) - place
            ends.insert(place, end)
    return crossings


# -- the picture -------------------------------------------------------------------------------------------------------


def _derive_columns(boxes: Iterable[_Box], count: int) -> list[tuple[int, int]]:
    """Returns where each layer begins and ends."""
    widths = [0] * count
    for box in boxes:
        widths[box.layer] = max(widths[box.layer], box.width)
    starts = accumulate(widths, lambda start, width: start + width + LAYER_GAP, initial=MARGIN)
    return [(start, start + width) for start, width in zip(starts, widths, strict=False)]


def _at(box: _Box, columns: Sequence[tuple[int, int]], place: Point) -> Point:
    return columns[box.layer][0] + place[0], int(box.item.y) + place[1]


def _right_of(box: _Box, columns: Sequence[tuple[int, int]], node: int) -> Point:
    """Returns the middle of the right side of a node."""
    x, y = _at(box, columns, box.places[node])
    return x + STEP_WIDTH, y + STEP_HEIGHT // 2


def _place_inner(boxes: Iterable[_Box], columns: Sequence[tuple[int, int]]) -> Iterator[PlacedEdge]:
    """Yields the lines between the operators of a vertex."""
    for box in boxes:
        for index, node in enumerate(box.vertex.nodes):
            for output, way in node.outputs.items():
                for child in way.children:
                    x, y = _at(box, columns, box.places[child])
                    points = (_right_of(box, columns, index), (x, y + STEP_HEIGHT // 2))
                    ends = (node.operator.name, box.vertex.nodes[child].operator.name)
                    yield PlacedEdge(*ends, 0, output, exchanged=False, points=points)


def _place_outer(
    boxes: Mapping[VertexId, _Box],
    ways: Iterable[_Way],
    lanes: Mapping[tuple[_Key, int], _Item],
    columns: Sequence[tuple[int, int]],
) -> Iterator[PlacedEdge]:
    """Yields the lines between vertices: along the row of their exit, the lanes, and to the step that they lead to."""
    for way in ways:
        source, target = boxes[way.edge.upstream], boxes[way.edge.downstream]
        height = int(source.item.y) + source.exits[way.key]
        if way.key[0] == DEAD:
            points = [_at(source, columns, (source.width, source.exits[way.key]))]
        else:
            x, y = _right_of(source, columns, way.node)
            right = columns[source.layer][1]
            points = [(x, y), (min(x + STEP_GAP, right), height)] if y != height else [(x, y)]
        points.append((columns[source.layer][1], height))
        for layer in range(source.layer + 1, target.layer):
            lane = int(lanes[way.key, layer].y) + LANE_HEIGHT // 2
            points += [(columns[layer][0], lane), (columns[layer][1], lane)]
        x, y = _at(target, columns, (0, _derive_entry(target, way)))
        points += [(x, y)] if way.edge.retries else [(x, y), (x + PADDING, y)]
        reader = target.vertex.nodes[way.edge.node].operator.name
        yield PlacedEdge(way.name, reader, way.edge.port, way.output, bool(way.edge.keys), tuple(points))
