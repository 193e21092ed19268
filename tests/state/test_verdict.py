"""What a written state is found to be, next to what is needed now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidegate.datatypes import BIGINT, DOUBLE, FLOAT, INT, SMALLINT, STRING, TINYINT, DataType, decimal_of
from tidegate.ids import StateName
from tidegate.state.compatibility import Fit, Verdict
from tidegate.state.declaration import (
    LASTS,
    SETTLED,
    Evolution,
    Serializer,
    StateDeclaration,
    StateField,
    StateForm,
    StateShape,
    declare_list,
)
from tidegate.state.errors import StateUnreadable
from tidegate.state.migration import Migration, MigrationFailed, derive_migration
from tidegate.state.verdict import judge, refuse_other_shape

SHAPE = StateShape(
    keys=(StateField("customer", STRING), StateField("day", INT)),
    values=(StateField("n", INT, nullable=False), StateField("low", FLOAT)),
    key_hash="hash v1",
    max_parallelism=8,
)
N, LOW = SHAPE.values
LISTED = declare_list("readers", (N,)).shape


def changed(**fields: object) -> StateShape:
    return msgspec.structs.replace(SHAPE, **fields)


def judged(written: StateShape, wanted: StateShape) -> Verdict:
    return judge(written, StateDeclaration(StateName("totals"), wanted))


def migration(written: StateShape, wanted: StateShape) -> Migration | None:
    return derive_migration(written, StateDeclaration(StateName("totals"), wanted))


def test_the_same_fits_as_it_is() -> None:
    verdict = judged(SHAPE, SHAPE)
    assert (verdict.fit, verdict.reason) == (Fit.AS_IS, "")
    assert migration(SHAPE, SHAPE) is None
    expiring = changed(expires=True)
    assert migration(expiring, expiring) is None


@pytest.mark.parametrize(
    "wanted",
    [
        changed(values=(StateField("n", INT), LOW)),  # what was never NULL may be so from now on
        msgspec.structs.replace(LISTED, form=StateForm.UNION),
    ],
)
def test_what_a_reader_does_not_notice_fits_as_it_is(wanted: StateShape) -> None:
    written = SHAPE if wanted.form is StateForm.KEYED else LISTED
    assert judged(written, wanted).fit is Fit.AS_IS


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (changed(values=(StateField("n", BIGINT, nullable=False), LOW)), "n was int and is bigint"),
        (changed(values=(N, StateField("low", DOUBLE))), "low was float and is double"),
        (changed(keys=(SHAPE.keys[0], StateField("day", BIGINT))), "day was int and is bigint"),
    ],
)
def test_numbers_of_one_kind_that_widen_are_read_from_the_same_bytes(wanted: StateShape, reason: str) -> None:
    verdict = judged(SHAPE, wanted)
    assert (verdict.fit, verdict.reason) == (Fit.AFTER_RECONFIGURATION, reason)
    assert migration(SHAPE, wanted) is None


@pytest.mark.parametrize(("old", "new"), [(TINYINT, SMALLINT), (SMALLINT, INT), (INT, BIGINT), (TINYINT, BIGINT)])
def test_an_integer_of_a_key_may_become_a_wider_one(old: DataType, new: DataType) -> None:
    written, wanted = (changed(keys=(SHAPE.keys[0], StateField("day", kind))) for kind in (old, new))
    assert judged(written, wanted) == Verdict(Fit.AFTER_RECONFIGURATION, f"day was {old} and is {new}")


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (changed(expires=True), "entries can expire now"),
        (changed(values=(LOW, N)), "the columns are in another order"),
        (
            changed(values=(N, LOW, StateField("high", FLOAT))),
            "high is new, NULL where there are entries already",
        ),
        (
            changed(values=(N, StateField("low", FLOAT, nullable=False))),
            "low could be NULL and cannot any more",
        ),
    ],
)
def test_other_entries_are_a_migration(wanted: StateShape, reason: str) -> None:
    verdict = judged(SHAPE, wanted)
    assert (verdict.fit, verdict.reason) == (Fit.AFTER_MIGRATION, reason)
    assert migration(SHAPE, wanted) is not None


def test_the_expiry_slot_is_added_and_taken_away() -> None:
    add, drop = migration(SHAPE, changed(expires=True)), migration(changed(expires=True), SHAPE)
    assert add is not None
    assert drop is not None
    assert add.apply([(("ann", 1), (1, 2.5))]) == [(("ann", 1), (1, 2.5, None))]
    assert drop.apply([(("ann", 1), (1, 2.5, 99))]) == [(("ann", 1), (1, 2.5))]
    assert judged(changed(expires=True), SHAPE).reason == "entries cannot expire any more"


def lasting(time: str, **fields: object) -> StateShape:
    return changed(expires=True, serializer=Serializer(parameters={LASTS: time}), **fields)


@pytest.mark.parametrize(
    ("now", "end", "expected"),
    [
        ("3000 ms of event time", 5_000, 7_000),
        ("400 ms of event time", 5_000, 4_400),
        ("3000 ms of event time", None, None),
        ("3000 ms of processing time", 5_000, None),  # found again, as where nobody has said when
    ],
)
def test_ends_of_entries_move_where_these_last_otherwise(now: str, end: int | None, expected: int | None) -> None:
    written, wanted = lasting("1000 ms of event time"), lasting(now)
    assert judged(written, wanted) == Verdict(
        Fit.AFTER_MIGRATION, f"entries lasted 1000 ms of event time and last {now}"
    )
    migrate = migration(written, wanted)
    assert migrate is not None
    assert migrate.apply([(("ann", 1), (1, 2.5, end))]) == [(("ann", 1), (1, 2.5, expected))]


def test_ends_of_entries_stay_where_these_last_as_long() -> None:
    migrate = migration(lasting("1000 ms of event time"), lasting("1000 ms of event time", values=(LOW, N)))
    assert migrate is not None
    assert migrate.apply([(("ann", 1), (1, 2.5, 5_000))]) == [(("ann", 1), (2.5, 1, 5_000))]


def settled(kept: str, **fields: object) -> StateDeclaration:
    """Its operator keeps no number above 9."""
    parameters = {SETTLED: kept} if kept else {}
    return StateDeclaration(
        StateName("totals"),
        changed(serializer=Serializer(parameters=parameters), **fields),
        settles=lambda value: tuple(min(number, 9) for number in value),
    )


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ("first 3", settled("first 2"), Verdict(Fit.AFTER_MIGRATION, "it held the first 3 and holds the first 2")),
        (
            "first 2",
            settled("first 2", values=(LOW, N)),
            Verdict(Fit.AFTER_MIGRATION, "the columns are in another order"),
        ),
    ],
)
def test_the_operator_settles_values_that_another_definition_has_made(
    before: str, now: StateDeclaration, verdict: Verdict
) -> None:
    written = settled(before).shape
    assert judge(written, now) == verdict
    migrate = derive_migration(written, now)
    assert migrate is not None
    value = (12, 2.5)
    expected = (9, 2.5) if now.shape.values == written.values else (2.5, 9)
    assert migrate.apply([(("ann", 1), value)]) == [(("ann", 1), expected)]


def test_values_that_are_settled_already_are_not_looked_at() -> None:
    assert derive_migration(settled("first 2").shape, settled("first 2")) is None


@pytest.mark.parametrize(
    ("shape", "entry"),
    [
        (SHAPE, ("ann", None)),
        (changed(keys=(N, *SHAPE.keys, StateField("last", STRING)), prefix=1, suffix=1), (7, "ann", None, "x")),
    ],
)
def test_a_key_that_was_NULL_where_it_cannot_be_any_more_ends_the_migration(
    shape: StateShape, entry: tuple[object, ...]
) -> None:
    day = StateField("day", INT, nullable=False)
    wanted = msgspec.structs.replace(shape, keys=tuple(day if key.name == "day" else key for key in shape.keys))
    assert judged(shape, wanted) == Verdict(Fit.AFTER_MIGRATION, "day could be NULL and cannot any more")
    migrate = migration(shape, wanted)
    assert migrate is not None
    fine = tuple(1 if column is None else column for column in entry)
    assert migrate.apply([(fine, (1, 2.5)), (fine, None)]) == [(fine, (1, 2.5)), (fine, None)]
    with pytest.raises(MigrationFailed) as failed:
        migrate.apply([(fine, (1, 2.5)), (entry, (1, 2.5))])
    assert (failed.value.key, failed.value.reason) == (entry, "day is NULL, and cannot be any more")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"columns": {"lowest": "least"}}, ["lowest", "most", "other"]),
        ({"dropped": frozenset({"most"})}, ["least", "other"]),
        ({"columns": {"lowest": "least"}, "dropped": frozenset({"most"})}, ["lowest", "other"]),
    ],
)
def test_entries_that_are_kept_for_a_column_go_with_it_whatever_else_becomes_of_them(
    said: dict[str, Any], expected: list[str]
) -> None:
    """A column of the key has the same name as the one that says which columns they are of."""
    of = StateField("column", STRING)
    keys = (of, StateField("value", INT), of, StateField("last", INT))
    written = changed(keys=keys, values=(StateField("n", INT),), suffix=3)
    wanted = msgspec.structs.replace(
        written,
        keys=(msgspec.structs.replace(of, nullable=False), *keys[1:]),
        values=(StateField("n", DOUBLE, nullable=False),),
    )
    migrate = derive_migration(
        written, StateDeclaration(StateName("totals"), wanted, names_columns="column", evolution=Evolution(**said))
    )
    assert migrate is not None
    names = ("least", "most", "other")
    found = migrate.apply([(("least", 5, name, 6), (1,)) for name in names])
    assert found == [(("least", 5, name, 6), (1.0,)) for name in expected]
    assert all(isinstance(value[0], float) for _, value in found if value is not None)
    with pytest.raises(MigrationFailed, match="column is NULL"):
        migrate.apply([((None, 5, "other", 6), (1,))])


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (changed(values=(N,)), "low is gone"),
        (
            changed(values=(N, LOW, StateField("high", FLOAT, nullable=False))),
            "high is new, cannot be NULL, and has no default",
        ),
        (changed(values=(StateField("n", STRING), LOW)), "n was int and is string"),
        (changed(values=(N, StateField("low", INT))), "low was float and is int"),
        (changed(keys=SHAPE.keys[:1]), "its key was customer, day and is customer"),
        (
            changed(keys=(SHAPE.keys[0], StateField("hour", INT))),
            "its key: it was customer, day and is customer, hour",
        ),
        (
            changed(keys=SHAPE.keys[::-1]),
            "the key columns are in another order: it was customer, day and is day, customer",
        ),
        (
            changed(keys=(SHAPE.keys[0], StateField("day", decimal_of(12)))),
            "key column day was int and is decimal(12,0): keys would be in other key groups",
        ),
        (changed(suffix=1), "0 of the last key columns did not count for the key group, now 1 do not"),
        (changed(prefix=1), "0 of the first key columns did not count for the key group, now 1 do not"),
        (changed(key_hash="hash v2"), "keys were hashed by 'hash v1', and are by 'hash v2'"),
        (changed(max_parallelism=16), "it had 8 key groups, now 16"),
        (
            changed(serializer=Serializer("msgpack", 2, {"zip": "zstd"})),
            "its serializer was msgpack 1, this release has msgpack 2 (zip=zstd)",
        ),
        (msgspec.structs.replace(LISTED, values=SHAPE.values), "it was keyed and is split"),
    ],
)
def test_everything_else_is_incompatible_and_says_why(wanted: StateShape, reason: str) -> None:
    verdict = judged(SHAPE, wanted)
    assert verdict.fit is Fit.INCOMPATIBLE
    assert reason in verdict.reason.split("; ")


def test_narrower_numbers_are_incompatible() -> None:
    wide = changed(values=(StateField("n", BIGINT, nullable=False), LOW))
    assert judged(wide, SHAPE).reason == "n was bigint and is int"


def test_all_reasons_are_given_at_once() -> None:
    verdict = judged(SHAPE, changed(keys=SHAPE.keys[:1], values=(N,)))
    assert verdict.reason == "its key was customer, day and is customer; low is gone"


def test_S10_a_refusal_names_state_and_step_with_both_shapes_the_difference_and_the_remedy() -> None:
    with pytest.raises(StateUnreadable) as refused:
        refuse_other_shape("visits", SHAPE, StateDeclaration(StateName("totals"), changed(values=(N,))))
    assert refused.value.message == (
        "state totals of visits was written as (customer string, day int) -> (n int, low float) in 8 key groups, the "
        "pipeline now needs (customer string, day int) -> (n int) in 8 key groups (low is gone): put the old "
        "definition of the step back; or say what becomes of the columns (`was` for those that are renamed, `state: "
        "{drop: [...]}` for those that are given up); or let the step begin with empty state (`state: reset`); or "
        "start with an empty `checkpoints.directory` and --begin-anew (all state empty, sources at their `start`)"
    )


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("Totals", SHAPE, "state name 'Totals' is not of the form"),
        ("a.b", SHAPE, "state name 'a.b' is not of the form"),
        ("totals", changed(keys=()), "state totals is keyed and has 0 key columns"),
        ("totals", changed(suffix=2), "needs at least one key column for its key groups"),
        ("totals", changed(prefix=1, suffix=1), "needs at least one key column for its key groups"),
        ("totals", changed(prefix=-1), "needs at least one key column for its key groups"),
        ("totals", changed(keys=(StateField("x", DOUBLE),)), "key column x of state totals cannot be of type double"),
        ("readers", msgspec.structs.replace(LISTED, keys=SHAPE.keys), "state readers is split and has 2 key columns"),
    ],
)
def test_S01_a_declaration_that_no_backend_could_keep_is_refused(name: str, shape: StateShape, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StateDeclaration(StateName(name), shape)
