"""The file format of state."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DOUBLE, FLOAT, INT, STRING, DataType
from tidegate.ids import StateName
from tidegate.state import snapshot as file_format
from tidegate.state.declaration import Serializer, StateDeclaration, StateField, StateShape
from tidegate.state.errors import StateUnreadable
from tidegate.state.serializers.contract import SerializerSnapshot
from tidegate.state.serializers.registry import FIRST, SERIALIZERS
from tidegate.state.snapshot import Entry, encode_snapshot, read_encoded, read_entries, read_header

SHAPE = StateShape(
    keys=(StateField("customer", STRING), StateField("vip", BOOLEAN)),
    values=(StateField("n.count", BIGINT, nullable=False), StateField("s.sum", DOUBLE), StateField("l.last", BINARY)),
    key_hash="hash v1",
    max_parallelism=8,
)
TOTALS = StateName("totals")
DECLARED = StateDeclaration(TOTALS, SHAPE)
GROUPS: dict[int, list[Entry]] = {
    5: [(("ann", True), (2**63 - 1, 1.5, b"\xff")), ((None, None), (0, None, None))],
    0: [(("", False), (-(2**63), -0.0, b""))],
}


def read(data: bytes, groups: range = range(8), shape: StateShape = SHAPE) -> list[Entry]:
    return [
        entry for entries in read_entries(data, groups, "totals", StateDeclaration(TOTALS, shape)) for entry in entries
    ]


def snapshot() -> bytes:
    return encode_snapshot("totals", DECLARED, GROUPS)


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
    shape = StateShape((StateField("k", STRING),), (), "h", 2)
    header = (
        b'{"operator":"o","state":"s","shape":{"keys":[{"name":"k","type":{"kind":"string"},"nullable":true}],'
        b'"values":[],"key_hash":"h","max_parallelism":2,"form":"keyed","suffix":0,"prefix":0,"expires":false,'
        b'"serializer":{"name":"msgpack","version":1,"parameters":{},"versions":{}}},"groups":[[1,0,11,2,505630627]]}'
    )
    entries: list[Entry] = [(("a",), ()), (("b",), None)]
    data = encode_snapshot("o", StateDeclaration(StateName("s"), shape), {1: entries})
    assert data == b"TGKS\x00\x01" + len(header).to_bytes(4, "big") + header + bytes.fromhex("929291a161909291a162c0")


def test_S05_keys_and_values_are_read_in_the_versions_that_the_file_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, int]] = []

    class Asked:
        def read(self, written: DataType, versions: Mapping[str, int] = FIRST) -> SerializerSnapshot:
            asked.append(versions)
            return SERIALIZERS.read(written, versions)

    monkeypatch.setattr(file_format, "SERIALIZERS", Asked())
    versions = {"string": 1, "bigint": 1}
    declared = StateDeclaration(TOTALS, msgspec.structs.replace(SHAPE, serializer=Serializer(versions=versions)))
    data = encode_snapshot("totals", declared, GROUPS)
    assert list(read_entries(data, range(8), "totals", declared)) == [GROUPS[0], GROUPS[5]]
    assert [group for group, _, _ in read_encoded(data, range(8), "totals", declared)] == [0, 5]
    columns = len(SHAPE.keys) + len(SHAPE.values)
    assert asked == [versions] * (columns + len(SHAPE.keys))


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
        (snapshot()[:4] + b"\x00\x00" + snapshot()[6:], "has format 0, this release reads 1"),
        (snapshot()[:20] + b"\xff" + snapshot()[21:], "header of a state file is damaged"),
    ],
)
def test_what_is_not_ours_is_refused(changed: bytes, message: str) -> None:
    with pytest.raises(StateUnreadable, match=message):
        read(changed)


def test_another_operator_is_refused() -> None:
    with pytest.raises(StateUnreadable, match=r"totals\.totals was given to other\.totals"):
        list(read_entries(snapshot(), range(8), "other", DECLARED))


def test_a_number_that_was_narrower_is_read_as_the_wider_one() -> None:
    values = (StateField("n", INT, nullable=False), StateField("low", FLOAT))
    narrow = msgspec.structs.replace(SHAPE, values=values)
    wide = msgspec.structs.replace(SHAPE, values=(StateField("n", BIGINT), StateField("low", DOUBLE)))
    entries: list[Entry] = [(("ann", True), (7, 1.5)), (("bob", False), (8, None)), (("cid", None), None)]
    assert read(encode_snapshot("totals", StateDeclaration(TOTALS, narrow), {3: entries}), shape=wide) == entries
    with pytest.raises(StateUnreadable, match="n was bigint and is int; low was double and is float"):
        read(encode_snapshot("totals", StateDeclaration(TOTALS, wide), {3: entries}), shape=narrow)


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
        read(encode_snapshot("totals", DECLARED, wrong))


def test_null_where_there_can_be_none_is_damage() -> None:
    wrong: dict[int, list[Entry]] = {0: [(("ann", True), (None, None, None))]}
    with pytest.raises(StateUnreadable, match="key group 0 is damaged"):
        read(encode_snapshot("totals", DECLARED, wrong))
