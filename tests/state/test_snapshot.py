"""The file format of keyed state."""

from __future__ import annotations

import pytest

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DOUBLE, STRING
from tidegate.state.errors import StateUnreadable
from tidegate.state.snapshot import Entry, StateField, StateShape, encode_snapshot, read_entries, read_header

SHAPE = StateShape(
    keys=(StateField("customer", STRING), StateField("vip", BOOLEAN)),
    values=(StateField("n.count", BIGINT, nullable=False), StateField("s.sum", DOUBLE), StateField("l.last", BINARY)),
    key_hash="hash v1",
    max_parallelism=8,
)
GROUPS: dict[int, list[Entry]] = {
    5: [(("ann", True), (2**63 - 1, 1.5, b"\xff")), ((None, None), (0, None, None))],
    0: [(("", False), (-(2**63), -0.0, b""))],
}


def read(data: bytes, groups: range = range(8), shape: StateShape = SHAPE) -> list[Entry]:
    return [entry for entries in read_entries(data, groups, "totals", "totals", shape) for entry in entries]


def snapshot() -> bytes:
    return encode_snapshot("totals", "totals", SHAPE, GROUPS)


def test_entries_come_back_by_group() -> None:
    assert read(snapshot()) == GROUPS[0] + GROUPS[5]


def test_only_the_wanted_key_groups_are_read() -> None:
    assert read(snapshot(), range(4, 8)) == GROUPS[5]
    assert read(snapshot(), range(1, 5)) == []


def test_header_names_operator_shape_and_counts() -> None:
    header, start = read_header(snapshot())
    assert (header.operator, header.state, header.shape) == ("totals", "totals", SHAPE)
    assert [(part.group, part.entries) for part in header.groups] == [(0, 1), (5, 2)]
    assert start + sum(part.size_bytes for part in header.groups) == len(snapshot())


def test_golden_bytes() -> None:
    data = encode_snapshot("o", "s", StateShape((StateField("k", STRING),), (), "h", 2), {1: [(("a",), ())]})
    assert data.hex() == (
        "54474b530001000000"
        "a9"
        + b'{"operator":"o","state":"s","shape":{"keys":[{"name":"k","type":{"kind":"string"},"nullable":true}],'
        b'"values":[],"key_hash":"h","max_parallelism":2},"groups":[[1,0,6,1]]}'.hex()
        + "919291a16190"
    )


def test_no_truncation_goes_unnoticed() -> None:
    data = snapshot()
    for length in range(len(data)):
        with pytest.raises(StateUnreadable):
            read(data[:length])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (b"XXXX" + snapshot()[4:], "does not begin with TGKS"),
        (snapshot()[:4] + b"\x00\x02" + snapshot()[6:], "has format 2, this release reads 1"),
        (snapshot()[:20] + b"\xff" + snapshot()[21:], "header of a state file is damaged"),
    ],
)
def test_what_is_not_ours_is_refused(changed: bytes, message: str) -> None:
    with pytest.raises(StateUnreadable, match=message):
        read(changed)


def test_another_operator_is_refused() -> None:
    with pytest.raises(StateUnreadable, match=r"totals\.totals was given to other\.totals"):
        list(read_entries(snapshot(), range(8), "other", "totals", SHAPE))


def test_another_shape_is_refused_with_both() -> None:
    other = StateShape(SHAPE.keys, SHAPE.values[:1], SHAPE.key_hash, SHAPE.max_parallelism)
    with pytest.raises(StateUnreadable, match=r"was written as .*s\.sum double.* now needs .*n\.count bigint\)"):
        read(snapshot(), shape=other)


def test_the_remedy_for_another_shape_does_not_end_in_the_next_refusal() -> None:
    """A new name for the step is refused, too, for the state that the checkpoint holds under the old one."""
    other = StateShape(SHAPE.keys, SHAPE.values[:1], SHAPE.key_hash, SHAPE.max_parallelism)
    with pytest.raises(StateUnreadable, match=r"start with an empty `checkpoints\.directory`") as raised:
        read(snapshot(), shape=other)
    assert "new name" not in raised.value.message


def test_a_value_of_the_wrong_type_is_damage() -> None:
    wrong: dict[int, list[Entry]] = {0: [(("ann", True), ("one", None, None))]}
    with pytest.raises(StateUnreadable, match="key group 0 is damaged"):
        read(encode_snapshot("totals", "totals", SHAPE, wrong))


def test_null_where_there_can_be_none_is_damage() -> None:
    wrong: dict[int, list[Entry]] = {0: [(("ann", True), (None, None, None))]}
    with pytest.raises(StateUnreadable, match="key group 0 is damaged"):
        read(encode_snapshot("totals", "totals", SHAPE, wrong))
