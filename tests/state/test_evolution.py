"""Entries that were written in another shape: every kind of change, in both backends, in chains of files of several."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.state.evolutions import CASES, play, render
from tests.state.evolving import ALL, BACKENDS, KEY, Entries, capture, declare, open_state, reshape, restore, write
from tidegate.datatypes import BIGINT, BINARY, DATE, DOUBLE, INT, STRING, DataType, decimal_of
from tidegate.ids import CheckpointId, OperatorName
from tidegate.state.compatibility import Fit, Verdict
from tidegate.state.declaration import Evolution, StateDeclaration, StateField
from tidegate.state.errors import StateUnreadable
from tidegate.state.migration import derive_migration
from tidegate.state.snapshot import read_encoded, read_entries, read_header
from tidegate.state.verdict import judge

ROOT = Path(__file__).resolve().parents[2]
N, NET = StateField("n", INT), StateField("net", DOUBLE)
OLD = declare([N, NET])
ENTRIES: Entries = {("ann",): (1, 0.5), ("bob",): (None, None), (None,): (3, 1.5)}


def evolved(*values: StateField, **said: Any) -> StateDeclaration:
    return declare(values, evolution=Evolution(**said))


WIDER = evolved(StateField("net", DOUBLE), StateField("id", BIGINT), StateField("s", STRING), columns={"id": "n"})
AS_WIDER: Entries = {("ann",): (0.5, 1, None), ("bob",): (None, None, None), (None,): (1.5, 3, None)}


@pytest.mark.parametrize("backends", [("memory",), pytest.param(BACKENDS, marks=pytest.mark.slow)], ids=len)
def test_the_page_says_what_happens(backends: tuple[str, ...]) -> None:
    """After a change of it: `python -m tests.state.evolutions > docs/state-evolution.md`."""
    assert (ROOT / "docs" / "state-evolution.md").read_text(encoding="utf-8") == render(backends)


def test_S06_there_are_four_verdicts() -> None:
    wanted = {
        Fit.AS_IS: OLD,
        Fit.AFTER_RECONFIGURATION: evolved(StateField("n", BIGINT), NET),
        Fit.AFTER_MIGRATION: evolved(StateField("n", DOUBLE), NET),
        Fit.INCOMPATIBLE: evolved(StateField("n", STRING), NET),
    }
    assert {judge(OLD.shape, one).fit: one for one in wanted.values()} == wanted
    reconfigured = next(case for case in CASES if case.what == "float → double")
    assert judge(declare(reconfigured.old).shape, declare(reconfigured.new)).fit is Fit.AFTER_RECONFIGURATION


@pytest.mark.parametrize("backend", BACKENDS)
def test_S07_the_serializer_that_wrote_is_rebuilt_from_the_file_alone(backend: str) -> None:
    old = declare([StateField("v", decimal_of(10, 2)), StateField("d", DATE)])
    new = evolved(StateField("d", DataType("timestamp")), StateField("v", decimal_of(20, 3)))
    found = restore(write(old, {("a",): (Decimal("1.25"), 1)}), new, backend)
    assert repr(found) == "{('a',): (86400000000, Decimal('1.250'))}"


def entries_of(file: bytes, declaration: StateDeclaration) -> dict[tuple[object, ...], bytes]:
    """Keys, and values as RocksDB is given them."""
    parts = list(read_encoded(file, range(4), "step", declaration))
    return {key: value for _, keys, values in parts for key, value in zip(keys, values, strict=True)}


def test_S08_bytes_that_fit_are_loaded_undecoded_and_all_others_migrated_before_the_first_record() -> None:
    (file,) = write(OLD, ENTRIES)
    assert entries_of(file, OLD) == {key: msgspec.msgpack.encode(value) for key, value in ENTRIES.items()}
    assert entries_of(file, WIDER) == {key: msgspec.msgpack.encode(value) for key, value in AS_WIDER.items()}
    state = open_state(WIDER, "rocksdb")
    try:
        state.restore([file], ALL)
        assert {key: state.get(key) for key in state.keys()} == {key: value for (key,), value in AS_WIDER.items()}  # noqa: SIM118  # no dict
    finally:
        state.close()


def test_S09_memory_holds_values_of_the_new_shape_after_a_restore() -> None:
    state = open_state(WIDER, "memory")
    state.restore(write(OLD, ENTRIES, "rocksdb"), ALL)
    assert state.get_many(["ann", "bob", None]) == list(AS_WIDER.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_S10_what_cannot_be_read_is_refused_with_the_name_of_the_state(backend: str) -> None:
    wanted = evolved(StateField("n", STRING), NET)
    with pytest.raises(StateUnreadable, match="state s of step was written as") as refused:
        restore(write(OLD, ENTRIES), wanted, backend)
    assert refused.value.fields["state"] == "s"


@pytest.mark.parametrize("backend", BACKENDS)
def test_S11_the_next_snapshot_is_whole_and_has_the_new_serializers(backend: str) -> None:
    state = open_state(WIDER, backend)
    try:
        state.restore(write(OLD, ENTRIES), ALL)
        state.put("ann", (2.5, 9, "x"))
        captured = state.capture(CheckpointId(1))
        assert captured.builds_on == ()
        assert captured.encode is not None
        (file,) = captured.encode()
        header, _ = read_header(file)
        assert header.shape == WIDER.shape
        assert sum(group.entries for group in header.groups) == len(ENTRIES)
        assert dict(e for part in read_entries(file, range(4), "step", WIDER) for e in part) == {
            **AS_WIDER,
            ("ann",): (2.5, 9, "x"),
        }
    finally:
        state.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_files_of_several_shapes_in_one_chain_are_each_read_by_their_own(backend: str) -> None:
    full, narrow = write(OLD, ENTRIES), declare([N])
    state = open_state(narrow, "memory")
    state.put_many(["ann", "cid"], [(7,), (8,)])
    middle = capture(state)
    later = open_state(declare([NET, StateField("id", BIGINT), StateField("s", STRING)]), "memory")
    later.put_many(["dan", "eve", "fay"], [(4.0, 4, "d"), (5.0, 5, "e"), (6.0, 6, "f")])
    first = later.capture(CheckpointId(1))
    assert first.encode is not None
    last = list(first.encode())
    later.stored(CheckpointId(1), last)
    later.completed(CheckpointId(1))
    later.delete("eve")
    increment = capture(later, 2)
    assert restore([*full, *middle, *last, *increment], WIDER, backend) == {
        ("ann",): (None, 7, None),
        ("bob",): (None, None, None),
        (None,): (1.5, 3, None),
        ("cid",): (None, 8, None),
        ("dan",): (4.0, 4, "d"),
        ("fay",): (6.0, 6, "f"),
    }


@pytest.mark.parametrize("backend", BACKENDS)
def test_words_that_are_still_there_after_their_change_do_nothing(backend: str) -> None:
    said = {"columns": {"a": "n", "b": "a"}, "dropped": frozenset({"net"}), "defaults": {"c": 7}}
    wanted = evolved(StateField("b", INT), StateField("a", INT), StateField("c", INT), **said)
    old = declare([StateField("a", INT), N, NET])
    once = restore(write(old, {("x",): (1, 2, 0.5)}), wanted, backend)
    assert once == {("x",): (1, 2, 7)}
    assert judge(wanted.shape, wanted).fit is Fit.AS_IS
    assert restore(write(wanted, {("x",): (1, 2, None)}), wanted, backend) == {("x",): (1, 2, None)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_key_columns_are_renamed_and_integers_among_them_widened(backend: str) -> None:
    old = declare([N], keys=(*KEY, StateField("day", INT)))
    keys = (StateField("customer", STRING), StateField("day", BIGINT))
    wanted = declare([N], keys=keys, evolution=Evolution(columns={"customer": "k"}))
    entries: Entries = {("a", 1): (1,), ("b", None): (2,)}
    assert judge(old.shape, wanted).reason == "customer was k; day was int and is bigint"
    assert restore(write(old, entries), wanted, backend) == entries


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_entry_that_cannot_be_migrated_is_named_by_its_key(backend: str) -> None:
    wanted = evolved(StateField("n", INT, nullable=False), NET)
    with pytest.raises(StateUnreadable) as refused:
        restore(write(OLD, {("bob",): (None, 1.0)}), wanted, backend)
    assert refused.value.message == (
        "state s of step: the entry with key ('bob',) cannot be migrated: n is NULL, and cannot be any more; restore "
        "the old definition of the step, or start it with empty state (`state: reset`)"
    )
    assert refused.value.fields == {"operator": "step", "state": "s", "key": "('bob',)"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_may_have_another_name_and_entries_go_with_the_column_that_they_are_of(backend: str) -> None:
    plain = declare([N], names_columns="aggregate")
    keyed = reshape(plain, keys=(*plain.shape.keys, StateField("aggregate", STRING)), suffix=1)
    entries: Entries = {("a", "least"): (1,), ("a", "most"): (2,), ("a", "other"): (3,)}
    said = Evolution(columns={"lowest": "least"}, dropped=frozenset({"most"}))
    wanted = msgspec.structs.replace(keyed, evolution=said)
    assert restore(write(keyed, entries), wanted, backend) == {("a", "lowest"): (1,), ("a", "other"): (3,)}
    renamed = msgspec.structs.replace(OLD, evolution=Evolution(operator_was=OperatorName("totals")))
    (file,) = write(OLD, ENTRIES)
    assert list(
        read_entries(
            file, range(4), "sums", msgspec.structs.replace(renamed, evolution=Evolution(OperatorName("step")))
        )
    )
    with pytest.raises(StateUnreadable, match=r"a state file of step\.s was given to sums\.s"):
        list(read_entries(file, range(4), "sums", renamed))


def test_an_expiry_slot_stays_where_it_is() -> None:
    old, new = reshape(OLD, expires=True), reshape(WIDER, expires=True)
    assert restore(write(old, {("a",): (1, 0.5, 99)}), new, "memory") == {("a",): (0.5, 1, None, 99)}


def test_of_what_is_tried_only_some_is_refused() -> None:
    """In memory: the page is compared with both backends."""
    refused = {case.what for case in CASES if play(case, ("memory",)).result.startswith("refused")}
    assert refused >= {"a is gone", "int → string"}
    assert "a is new, nullable" not in refused


def rows_of(*fields: tuple[str, DataType]) -> StateField:
    """As operators keep rows: a list of structs, whose fields are columns."""
    return StateField("rows", DataType("array", element=DataType("struct", fields=fields)))


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ([StateField("rows", DataType("array", element=BINARY))], {}),
        ([rows_of(("a", INT))], {}),
        ([StateField("rows", BIGINT, nullable=False)], {}),
        ([StateField("rows", BIGINT), StateField("net.sum", DOUBLE)], {}),
        ([rows_of(("rows", BIGINT), ("net.sum", DOUBLE))], {"net.sum": None}),
    ],
)
def test_what_an_operator_has_for_itself_stays_where_a_column_of_that_name_is_renamed(
    values: list[StateField], begins: dict[str, Any]
) -> None:
    """The column is in another state of the step, or in the key."""
    wanted = declare(values, evolution=Evolution(columns={"x": "rows"}, dropped=frozenset({"rows"})), begins=begins)
    assert judge(declare(values).shape, wanted) == Verdict(Fit.AS_IS)
    assert derive_migration(declare(values).shape, wanted) is None


def test_a_total_of_the_same_name_as_what_an_operator_has_for_itself_is_renamed_alone() -> None:
    own = StateField("rows", BIGINT, nullable=False)
    old, new = ([own, StateField(f"{name}.sum", DOUBLE)] for name in ("rows", "net"))
    verdict = judge(declare(old).shape, declare(new, evolution=Evolution(columns={"net": "rows"})))
    assert verdict == Verdict(Fit.AFTER_RECONFIGURATION, "net was rows")


def test_a_new_column_with_the_name_of_one_that_was_renamed_has_none_of_its_values() -> None:
    wanted = evolved(StateField("id", INT), N, NET, columns={"id": "n"})
    assert judge(OLD.shape, wanted).reason == "id was n; n is new, NULL where there are entries already"
    assert restore(write(OLD, {("k",): (1, 0.5)}), wanted, "memory") == {("k",): (1, None, 0.5)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_columns_of_rows_are_renamed_widened_given_up_and_begin_under_their_own_names(backend: str) -> None:
    old = declare([rows_of(("a", INT), ("b", STRING), ("rows", INT))])
    said = Evolution(columns={"x": "a", "count": "rows"}, dropped=frozenset({"b"}), defaults={"y": 7})
    new = declare([rows_of(("y", INT), ("x", DOUBLE), ("count", INT))], evolution=said)
    assert judge(old.shape, new).reason == (
        "y is new, with 7 where there are entries already; x was a; x was int and is double; count was rows; "
        "b is given up"
    )
    entries: Entries = {("k",): (((1, "p", 2), (None, "q", 3), None),), ("l",): (None,)}
    found = restore(write(old, entries), new, backend)
    assert found == {("k",): (((7, 1.0, 2), (7, None, 3), None),), ("l",): (None,)}


def test_totals_of_sessions_begin_are_renamed_and_given_up_as_others_are() -> None:
    old = declare([rows_of(("start", BIGINT), ("net.sum", DOUBLE), ("low.min", INT))])
    said = Evolution(columns={"paid": "net"}, dropped=frozenset({"low"}))
    new = declare(
        [rows_of(("start", BIGINT), ("n.count", BIGINT), ("paid.sum", DOUBLE))],
        evolution=said,
        begins={"n.count": 0, "paid.sum": 0.0},
    )
    assert judge(old.shape, new).reason == "n is new and begins empty; paid was net; low is given up"
    found = restore(write(old, {("k",): (((5, 1.5, 2),),)}), new, "memory")
    assert found == {("k",): (((5, 0, 1.5),),)}


def test_a_dot_in_the_name_of_a_column_makes_no_totals_of_those_next_to_it() -> None:
    old, new = (rows_of((name, INT), ("place.city", STRING)) for name in ("a", "x"))
    verdict = judge(declare([old]).shape, declare([new], evolution=Evolution(columns={"x": "a"})))
    assert verdict == Verdict(Fit.AFTER_RECONFIGURATION, "x was a")


def test_a_column_of_rows_with_a_dot_in_its_name_is_new_renamed_and_given_up_by_that_name() -> None:
    old = declare([rows_of(("id", INT), ("place.city", STRING), ("place.zip", INT))])
    said = Evolution(columns={"place.town": "place.city"}, dropped=frozenset({"place.zip"}), defaults={"place.no": 7})
    new = declare([rows_of(("id", INT), ("place.town", STRING), ("place.no", INT))], evolution=said)
    assert judge(old.shape, new).reason == (
        "place.town was place.city; place.no is new, with 7 where there are entries already; place.zip is given up"
    )
    found = restore(write(old, {("k",): (((1, "rome", 5),),)}), new, "memory")
    assert found == {("k",): (((1, "rome", 7),),)}


def test_a_total_may_have_a_dot_in_its_name() -> None:
    old = declare([N, StateField("net.eu.sum", DOUBLE)])
    verdict = judge(old.shape, evolved(N, dropped=frozenset({"net.eu"})))
    assert verdict == Verdict(Fit.AFTER_MIGRATION, "net.eu is given up")
    renamed = evolved(N, StateField("paid.eu.sum", DOUBLE), columns={"paid.eu": "net.eu"})
    assert judge(old.shape, renamed) == Verdict(Fit.AFTER_RECONFIGURATION, "paid.eu was net.eu")


def test_a_key_column_may_have_a_dot_in_its_name() -> None:
    old, new = ([StateField(name, STRING)] for name in ("customer.id", "customer.no"))
    said = Evolution(columns={"customer.no": "customer.id"})
    verdict = judge(declare([N], keys=old).shape, declare([N], keys=new, evolution=said))
    assert verdict == Verdict(Fit.AFTER_RECONFIGURATION, "customer.no was customer.id")


def test_structs_within_a_total_are_no_rows() -> None:
    """Their fields are renamed by their whole names."""
    old, new = (StateField("net.seen", rows_of((name, INT)).type) for name in "ab")
    refused = judge(declare([old]).shape, declare([new], evolution=Evolution(columns={"b": "a"})))
    assert refused == Verdict(Fit.INCOMPATIBLE, "net.seen.a is gone")
