"""Serializers of values and their snapshots: found by name, written and read by version, judged part by part."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.state.evolving import BACKENDS, declare, restore, write
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.state.compatibility import AS_IS, Fit, Judged, Verdict
from tidegate.state.declaration import Evolution, Serializer, StateField, total_parameter
from tidegate.state.errors import StateUnreadable
from tidegate.state.migration import derive_migration
from tidegate.state.serializers.composite import ArraySnapshot, CompositeSnapshot, MapSnapshot, StructSnapshot
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, SnapshotUnreadable, ValueSerializer
from tidegate.state.serializers.registry import SERIALIZERS, SerializerRegistry
from tidegate.state.serializers.simple import BigintSnapshot, BooleanSnapshot, IntSnapshot, StringSnapshot
from tidegate.state.snapshot import encode_snapshot, read_entries, read_header
from tidegate.state.verdict import judge

SIMPLE = (BOOLEAN, STRING, BINARY, TIMESTAMP, TIMESTAMP_NTZ)
INTS = DataType("array", element=INT)
PLACE = DataType("struct", fields=(("city", STRING), ("days", INTS)))
EVERY = (*SIMPLE, INT, DOUBLE, decimal_of(10, 2), DATE, INTS, map_of(STRING, PLACE), PLACE)
N = StateField("n", INT)


def fit(old: DataType, new: DataType) -> Judged:
    return SERIALIZERS.read(old).judge(SERIALIZERS.serializer_of(new), FieldPath(path="x"))


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_S04_a_snapshot_is_written_read_and_rebuilds_its_serializer(kind: DataType) -> None:
    serializer = SERIALIZERS.serializer_of(kind)
    written = msgspec.json.encode(SERIALIZERS.snapshot_of(serializer).write())
    snapshot = SERIALIZERS.read(msgspec.json.decode(written, type=DataType))
    assert snapshot.version == 1
    assert snapshot.restore() == serializer
    assert snapshot.judge(serializer, FieldPath()) == AS_IS


class Scaled(SerializerSnapshot):
    """A number in units of which version 2 says how large they are; in version 1 they were hundredths."""

    kind = "scaled"
    version = 2

    def __init__(self) -> None:
        self.scale = 2

    def take(self, serializer: ValueSerializer) -> None:
        self.scale = serializer.type.scale

    def write(self) -> DataType:
        return DataType("scaled", scale=self.scale)

    def read(self, version: int, written: DataType) -> None:
        self.scale = 2 if version == 1 else written.scale

    def judge(self, new: ValueSerializer, place: FieldPath) -> Judged:
        return AS_IS if new == self.restore() else Judged(((Fit.INCOMPATIBLE, place.path),))

    def restore(self) -> ValueSerializer:
        return ValueSerializer(DataType("scaled", scale=self.scale), int)


def test_S04_S05_what_was_written_in_an_older_version_is_read_as_that() -> None:
    registry = SerializerRegistry(Scaled, ArraySnapshot, StructSnapshot, IntSnapshot)
    old, new = DataType("scaled"), DataType("scaled", scale=4)
    assert registry.read(old).restore().type.scale == 2
    assert registry.read(new, {"scaled": 2}).restore().type.scale == 4
    assert registry.serializer_of(new).type.scale == 4
    assert registry.versions_of(DataType("array", element=new)) == {"scaled": 2}
    assert registry.versions_of(DataType("struct", fields=(("a", new), ("b", INT)))) == {"scaled": 2}


class Tagged(StructSnapshot):
    """A struct whose names are written after a `#` since version 2."""

    kind = "struct"
    version = 2

    def write_outer(self) -> DataType:
        return DataType("struct", fields=tuple((f"#{name}", BOOLEAN) for name in self._names))

    def read_outer(self, version: int, written: DataType) -> None:
        self._names = tuple(name[version - 1 :] for name, _ in written.fields)

    def judge_outer(self, new: ValueSerializer, place: FieldPath) -> Judged:
        return super().judge_outer(new, place)


def test_S17_the_outer_version_and_those_of_the_parts_are_apart() -> None:
    registry = SerializerRegistry(Tagged, Scaled)
    written = DataType("struct", fields=(("#a", DataType("scaled", scale=4)),))
    for versions, name, scale in (
        ({"struct": 2}, "a", 2),
        ({"struct": 2, "scaled": 2}, "a", 4),
        ({"scaled": 2}, "#a", 4),
    ):
        (field,) = registry.read(written, versions).restore().type.fields
        assert field == (name, DataType("scaled", scale=scale))


@pytest.mark.parametrize("old", SIMPLE, ids=str)
def test_S12_what_nothing_configures_fits_its_own_name_and_no_other(old: DataType) -> None:
    assert {str(new): fit(old, new).fit for new in EVERY} == {
        str(new): Fit.AS_IS if new == old else Fit.INCOMPATIBLE for new in EVERY
    }


@pytest.mark.parametrize("kind", SIMPLE, ids=str)
def test_S13_the_supplier_rebuilds_the_serializer(kind: DataType) -> None:
    assert SERIALIZERS.read(kind).restore().type == kind
    with pytest.raises(SnapshotUnreadable, match="says more than its name"):
        SERIALIZERS.read(DataType(kind.kind, scale=1))


def test_S06_S14_the_worst_of_the_parts_wins() -> None:
    nested = {
        "as is": map_of(STRING, decimal_of(10, 2)),
        "after reconfiguration": map_of(STRING, decimal_of(12, 2)),
        "after migration": map_of(STRING, decimal_of(12, 4)),
        "incompatible": map_of(INT, decimal_of(12, 4)),
    }
    assert {name: fit(nested["as is"], new).fit for name, new in nested.items()} == {name: name for name in nested}
    assert (
        fit(nested["as is"], map_of(INT, BIGINT)).verdict.reason
        == "x was string and is int; x was decimal(10,2) and is bigint"
    )
    dates = map_of(DATE, STRING)
    assert fit(dates, map_of(TIMESTAMP, INT)).fit is Fit.INCOMPATIBLE


def test_S15_a_composite_is_rebuilt_from_its_parts_in_their_order() -> None:
    pair = DataType("struct", fields=(("a", INT), ("b", STRING)))
    assert SERIALIZERS.read(pair).restore().type == pair
    assert [one.type for one in SERIALIZERS.serializer_of(map_of(STRING, INT)).nested] == [STRING, INT]
    with pytest.raises(SnapshotUnreadable, match="does not say what is in it"):
        SERIALIZERS.read(DataType("array"))


def test_S16_outer_information_is_written_read_and_judged_or_is_none() -> None:
    with pytest.raises(TypeError, match="defines read_outer: write_outer, read_outer, judge_outer come as a set"):
        type("Half", (ArraySnapshot,), {"read_outer": lambda *_: None})
    assert MapSnapshot().write_outer() is None
    assert {"write_outer", "read_outer", "judge_outer"} <= vars(StructSnapshot).keys()
    outer = SERIALIZERS.snapshot_of(SERIALIZERS.serializer_of(PLACE))
    assert isinstance(outer, StructSnapshot)
    assert outer.write_outer() == DataType("struct", fields=(("city", DataType("void")), ("days", DataType("void"))))


def test_S18_a_map_needs_nothing_besides_its_parts_and_an_array_refuses_other_elements() -> None:
    written = SERIALIZERS.snapshot_of(SERIALIZERS.serializer_of(map_of(STRING, INT))).write()
    assert written == DataType("map", element=INT, key=STRING)
    assert SERIALIZERS.read(DataType("array", element=STRING)).write() == DataType("array", element=STRING)
    assert fit(INTS, DataType("array", element=STRING)).verdict.reason == "x was int and is string"
    assert fit(PLACE, STRING).verdict.reason == f"x was {PLACE} and is string"


class _Private(BooleanSnapshot):
    kind = "private"


def test_S19_snapshots_are_public_classes_at_the_top_of_a_module() -> None:
    class Hidden(BooleanSnapshot):
        kind = "hidden"

    for one in (Hidden, _Private):
        with pytest.raises(ValueError, match="must be a public class at the top of its module"):
            SerializerRegistry(one)


def test_S20_each_serializer_has_a_snapshot_of_its_own() -> None:
    with pytest.raises(ValueError, match="has a snapshot already"):
        SerializerRegistry(BooleanSnapshot, BooleanSnapshot)
    with pytest.raises(ValueError, match="has a snapshot already"):
        SerializerRegistry(StructSnapshot, Tagged)
    assert SERIALIZERS.read(INT).__class__ is IntSnapshot
    assert SERIALIZERS.read(BIGINT).__class__ is BigintSnapshot


def test_S21_names_of_files_are_looked_up_and_never_imported() -> None:
    assert issubclass(StringSnapshot, SerializerSnapshot)
    assert issubclass(ArraySnapshot, CompositeSnapshot)
    for name in ("tidegate.state.serializers.simple.StringSnapshot", "builtins.eval", "String", "void"):
        with pytest.raises(SnapshotUnreadable, match="no serializer is named"):
            SERIALIZERS.read(DataType(name))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"kind":"int"', b'"kind":"intt"', "no serializer is named `intt`"),
        (b'"versions":{}', b'"versions":{"int":2}', "`int` was written in version 2, this release reads 1 to 1"),
    ],
)
def test_S22_a_snapshot_that_cannot_be_rebuilt_ends_the_restore(old: bytes, new: bytes, reason: str) -> None:
    declaration = declare([N])
    data = encode_snapshot("step", declaration, {0: [(("a",), (1,))]})
    changed = data.replace(old, new)
    length = int.from_bytes(data[6:10], "big") + len(new) - len(old)
    changed = changed[:6] + length.to_bytes(4, "big") + changed[10:]
    with pytest.raises(StateUnreadable, match="state s of step was written") as refused:
        list(read_entries(changed, range(4), "step", declaration))
    assert f"({reason}: use the release that wrote it)" in refused.value.message


def with_parameters(**parameters: str) -> Any:
    declaration = declare([StateField("net.low", BIGINT), StateField("net.carry", BIGINT)])
    shape = msgspec.structs.replace(declaration.shape, serializer=Serializer(parameters=parameters))
    return msgspec.structs.replace(declaration, shape=shape)


def test_S02_another_configuration_of_a_serializer_is_another_schema() -> None:
    cents, mills = (with_parameters(**{total_parameter("net"): f"units of scale {scale}"}) for scale in (2, 3))
    verdict = judge(cents.shape, mills)
    assert verdict.fit is Fit.INCOMPATIBLE
    assert verdict.reason == "net was kept as units of scale 2 and is as units of scale 3"
    both = with_parameters(**{total_parameter("low"): "values", total_parameter("net"): "units of scale 2"})
    renamed = with_parameters(**{total_parameter("low"): "values", total_parameter("paid"): "units of scale 3"})
    renamed = msgspec.structs.replace(renamed, evolution=Evolution(columns={"paid": "net"}))
    assert "paid was kept as units of scale 2 and is as units of scale 3" in judge(both.shape, renamed).reason
    given_up = msgspec.structs.replace(declare([N]), evolution=Evolution(dropped=frozenset({"net"})))
    assert judge(cents.shape, given_up) == Verdict(
        Fit.AFTER_MIGRATION, "n is new, NULL where there are entries already; net is given up"
    )
    verdict = judge(with_parameters(bucket="1m").shape, with_parameters(bucket="2m"))
    assert verdict.fit is Fit.INCOMPATIBLE
    assert verdict.reason == "its bucket was 1m and is 2m"
    ten, twenty = (with_parameters(window=f"tumbling {minutes}m") for minutes in (10, 20))
    assert judge(ten.shape, twenty).reason == "its window was tumbling 10m and is tumbling 20m"
    assert judge(with_parameters().shape, ten).fit is Fit.AS_IS, "sessions are of no windows"
    assert judge(msgspec.structs.replace(cents.shape, serializer=Serializer("avro")), cents).fit is Fit.INCOMPATIBLE


@pytest.mark.parametrize("backend", BACKENDS)
def test_S23_totals_without_parameters_are_taken_as_they_are_and_written_with_them_from_then_on(backend: str) -> None:
    bare, now = with_parameters(), with_parameters(**{total_parameter("net"): "units of scale 2"})
    assert judge(bare.shape, now).fit is Fit.AS_IS
    entries = {("a",): (1, 2)}
    assert restore(write(bare, entries, backend), now, backend) == entries
    assert read_header(write(now, entries, backend)[0])[0].shape.serializer.parameters == {
        "total.net": "units of scale 2"
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_S01_S03_every_file_says_of_which_state_it_is_and_how_it_was_written(backend: str) -> None:
    declaration = declare([N, StateField("place", PLACE)])
    for file in write(declaration, {("a",): (1, ("rome", (1, None)))}, backend):
        header, _ = read_header(file)
        assert (header.operator, header.state, header.shape) == ("step", "s", declaration.shape)


def test_nothing_is_to_be_done_where_nothing_differs() -> None:
    declaration = declare([N])
    assert derive_migration(declaration.shape, declaration) is None
