"""Files of rows in flight: whose rows they hold, and what is refused (contract B50)."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.values import handle
from tests.task.small_rigs import batch
from tests.task.topologies import (
    MAX_PARALLELISM,
    edge,
    filter_node,
    parallel_plan,
    plan_of,
    shuffle_plan,
    source_node,
    totals_node,
    vertex,
)
from tidegate.coordinator.types import StateKind
from tidegate.datatypes import STRING
from tidegate.plan.graph import OutputPath, derive_edge_names
from tidegate.state.keygroups import key_group_of
from tidegate.task.elements import Batch
from tidegate.task.inflight import (
    EdgeShape,
    InflightCapture,
    InflightUnreadable,
    Recording,
    derive_shapes,
    read_inflight,
    read_replay,
    refuse_other_edges,
)
from tidegate.task.wire import EncodedBatch, encode_element

ALL = range(MAX_PARALLELISM)
SHAPES = derive_shapes(shuffle_plan(2))


def capture(*batches: Batch | EncodedBatch) -> InflightCapture:
    return InflightCapture(StateKind.INPUT, SHAPES, [(0, each) for each in batches])


def numbers(pieces: list[tuple[int, Batch]]) -> list[int]:
    return [n for _, each in pieces for n in each.frame["n"]]


def test_what_was_written_is_read_in_order_encoded_before_or_not() -> None:
    encoded = EncodedBatch(encode_element(batch((1, 3)))[1], 1)
    rows: list[Batch | EncodedBatch] = [batch((1, 1), (2, 2)), encoded, batch((3, 4))]
    assert numbers(read_inflight("f", capture(*rows).encode(), SHAPES, ALL)) == [1, 2, 3, 4]


def test_B50_only_rows_of_the_wanted_key_groups_are_taken() -> None:
    rows = batch(*((k, k) for k in range(50)))
    groups = key_group_of(rows.frame, ("k",), MAX_PARALLELISM).to_list()
    data = capture(rows).encode()
    parts = [numbers(read_inflight("f", data, SHAPES, part)) for part in (range(43), range(43, 128))]
    assert parts[0] == [k for k in range(50) if groups[k] < 43]
    assert sorted(parts[0] + parts[1]) == list(range(50))


def test_B50_every_row_is_in_exactly_one_part_of_the_key_groups() -> None:
    data = capture(batch(*((k, k) for k in range(200)))).encode()
    parts = [numbers(read_inflight("f", data, SHAPES, range(first, first + 8))) for first in range(0, 128, 8)]
    assert sorted(n for part in parts for n in part) == list(range(200))


def test_rows_of_other_edges_are_left_alone() -> None:
    assert read_inflight("f", capture(batch((1, 1))).encode(), {}, ALL) == []


def test_rows_behind_those_of_another_edge_are_taken() -> None:
    other = msgspec.structs.replace(SHAPES[0], name="other -> total")
    both = InflightCapture(StateKind.INPUT, {**SHAPES, 5: other}, [(0, batch((1, 1))), (5, batch((1, 2)))])
    assert numbers(read_inflight("f", both.encode(), {5: other}, ALL)) == [2]


def test_B50_what_receivers_had_is_replayed_before_what_senders_had_and_other_edges_are_not_read() -> None:
    files = {"a": capture(batch((1, 3))).encode(), "b": capture(batch((1, 1))).encode()}
    names = (SHAPES[0].name,)
    handles = [
        msgspec.structs.replace(handle(1, path=path), kind=kind, edges=edges)
        for path, kind, edges in (
            ("a", StateKind.OUTPUT, names),
            ("b", StateKind.INPUT, names),
            ("of another edge", StateKind.INPUT, ("other -> total",)),
        )
    ]
    pieces = read_replay(handles, lambda one: files[one.path], SHAPES, ALL)
    assert numbers(pieces) == [1, 3]
    none = [key for key in range(MAX_PARALLELISM) if key not in key_group_of(batch((1, 1)).frame, ("k",), 128)]
    assert read_replay(handles, lambda one: files[one.path], SHAPES, range(none[0], none[0] + 1)) == []


def test_an_edge_that_has_changed_is_refused_by_the_header_alone() -> None:
    data = capture(batch((1, 1))).encode()
    refuse_other_edges("f", data, SHAPES)
    changed = msgspec.structs.replace(SHAPES[0], columns=(*SHAPES[0].columns, ("more", STRING)))
    with pytest.raises(InflightUnreadable, match=r"f has rows in flight on .* with columns \(\w+ \w+"):
        refuse_other_edges("f", data, {0: changed})


def test_rows_are_refused_where_they_lack_the_event_time_that_is_needed_now() -> None:
    timed = {0: msgspec.structs.replace(SHAPES[0], timed=True)}
    data = capture(batch((1, 1))).encode()
    with pytest.raises(InflightUnreadable, match=r"rows in flight on read -> total without event time.*SIGTERM"):
        refuse_other_edges("f", data, timed)
    with pytest.raises(InflightUnreadable, match=r"rows in flight on read -> total without event time.*SIGTERM"):
        read_inflight("f", data, timed, ALL)


def test_an_edge_is_known_by_its_name_whatever_its_index_is_now() -> None:
    pieces = read_inflight("f", capture(batch((1, 1))).encode(), {7: SHAPES[0]}, ALL)
    assert [edge for edge, _ in pieces] == [7]


def test_only_edges_by_key_have_rows_in_flight() -> None:
    assert derive_edge_names(parallel_plan(2)) == {0: "pass -> total"}


def test_an_edge_of_a_side_output_is_named_after_it() -> None:
    node = filter_node("split", edges=(0,))
    split = msgspec.structs.replace(node, sides={"late": OutputPath(edges=(1,))})
    head = vertex(source_node("read", children=(1,)), split)
    edges = [edge(0, "read", "total", "k"), edge(1, "read", "again", "k")]
    plan = plan_of(1, [head, vertex(totals_node("total")), vertex(totals_node("again"))], edges)
    assert derive_edge_names(plan) == {0: "split -> total", 1: "split.late -> again"}
    assert derive_shapes(plan)[1].name == "split.late -> again"
    assert derive_shapes(parallel_plan(2)) == {}
    assert {index: shape.name for index, shape in SHAPES.items()} == {0: "read -> total"}


def test_columns_that_have_changed_are_refused_with_the_way_out() -> None:
    changed = msgspec.structs.replace(SHAPES[0], columns=(("k", STRING),))
    with pytest.raises(InflightUnreadable, match="rows in flight on read -> total with columns") as caught:
        read_inflight("f", capture(batch((1, 1))).encode(), {0: changed}, ALL)
    assert "SIGTERM" in caught.value.message
    assert not caught.value.retriable


@pytest.mark.parametrize("cut", [7, 3, 12, 60, -1])
def test_a_truncated_file_is_refused(cut: int) -> None:
    with pytest.raises(InflightUnreadable, match=r"^f |of f "):
        read_inflight("f", capture(batch((1, 1))).encode()[:cut], SHAPES, ALL)


def test_a_file_of_another_format_is_refused() -> None:
    data = bytearray(capture(batch((1, 1))).encode())
    data[5] = 9
    with pytest.raises(InflightUnreadable, match="has format 9, but this release reads 1"):
        read_inflight("f", bytes(data), SHAPES, ALL)


def test_a_spoilt_frame_is_refused() -> None:
    data = bytearray(capture(batch((1, 1))).encode())
    data[-120:] = b"x" * 120
    with pytest.raises(InflightUnreadable, match="rows in f cannot be read"):
        read_inflight("f", bytes(data), SHAPES, ALL)


def test_a_recording_is_complete_when_all_barriers_are_here_and_have_their_places() -> None:
    recording = Recording([(0, batch((1, 1)))], {2: (0, [batch((1, 2))])})
    recording.expect((1, 0))
    assert not recording.complete
    recording.alignment_ms = 5
    assert not recording.complete
    recording.overtaken((1, 0), ())
    assert recording.complete


def test_a_recording_holds_replayed_rows_before_queued_ones_and_those_before_arrived_ones() -> None:
    recording = Recording([(0, batch((1, 1)))], {0: (0, [batch((1, 2))]), 1: (0, [])})
    recording.arrived(0, batch((1, 3)))
    (side,) = recording.captures(SHAPES)
    assert (side.kind, side.edges, side.rows) == (StateKind.INPUT, ("read -> total",), 3)
    assert numbers(read_inflight("f", side.encode(), SHAPES, ALL)) == [1, 2, 3]


def test_the_senders_part_is_a_file_of_its_own() -> None:
    recording = Recording((), {})
    recording.expect((0, 1))
    recording.overtaken((0, 1), [EncodedBatch(encode_element(batch((1, 1)))[1], 1)])
    recording.overtaken((0, 2), [EncodedBatch(encode_element(batch((2, 2)))[1], 1)])
    (side,) = recording.captures(SHAPES)
    assert (side.kind, side.rows) == (StateKind.OUTPUT, 2)
    assert numbers(read_inflight("f", side.encode(), SHAPES, ALL)) == [1, 2]


def test_nothing_in_flight_makes_no_file() -> None:
    assert Recording((), {0: (0, [])}).captures(SHAPES) == []


def test_shapes_are_compared_whole() -> None:
    assert SHAPES[0] == EdgeShape("read -> total", SHAPES[0].columns, ("k",), MAX_PARALLELISM, timed=False)
