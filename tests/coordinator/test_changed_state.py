"""What becomes of the states of a step, by their headers, and what a user reads of each and has to choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import pytest

from tests.coordinator.values import IDENTITY, completed, handle, positions
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.types import StateKind
from tidegate.coordinator.upgrade import (
    CommandLineDirectives,
    Definition,
    StateChange,
    StepChange,
    StoredStates,
    Upgrade,
    UpgradeOutcome,
    UpgradeRefusal,
    WrittenState,
)
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.ids import OperatorName, StateName
from tidegate.operators.calls.spec import IN_FLIGHT
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.plan.graph import UpgradeDirective
from tidegate.state.declaration import Evolution, StateDeclaration, StateField, StateShape

A, B, C, S = (OperatorName(name) for name in ("a", "b", "c", "s"))
TOTALS: Final = StateName("totals")
RESET_DOES: Final = (
    "the step starts with empty state at the checkpoint: what it has counted, kept or seen is lost, "
    "nothing is read again, and the other steps continue"
)
KEEP_DOES: Final = (
    "the new definition continues with the existing state, so results mix both: what was counted, kept or seen before "
    "the "
    "change stays as it is"
)
HELD = completed(7, states=[msgspec.structs.replace(handle(7), operator=A)])


def declared(*columns: str, key: str = "k", name: StateName = TOTALS, kind: DataType = STRING) -> StateDeclaration:
    values = tuple(StateField(column, BIGINT) for column in columns)
    return StateDeclaration(name, StateShape((StateField(key, kind),), values, "h", 128))


def stored(declaration: StateDeclaration, operator: OperatorName = A) -> StoredStates:
    """Next to states of other steps, whose names sort before and after it."""
    other = WrittenState(declared("other").shape, 1, 1)
    found = {(OperatorName("0"), declaration.name): other, (OperatorName("z"), declaration.name): other}
    return {**found, (operator, declaration.name): WrittenState(declaration.shape, 3, 40)}


def means(origin: str = "s", **columns: str) -> StateFingerprint:
    return {origin: {f"`{name}`": f"2:{digest}" for name, digest in columns.items()}}


def identity(applied: Mapping[OperatorName, tuple[str, ...]] | None = None, **columns: str) -> Identity:
    return msgspec.structs.replace(IDENTITY, fingerprints={A: means(**columns)}, applied_directives=applied or {})


def one_step(
    *states: StateDeclaration, name: OperatorName = A, directive: UpgradeDirective | None = None, **columns: str
) -> Definition:
    directives = {} if directive is None else {name: directive}
    return Definition({name: means(**columns)}, {}, {name: states}, frozenset(), directives)


def step_of(upgrade: Upgrade) -> StepChange:
    assert upgrade.refusals == ()
    (step,) = upgrade.steps
    return step


def test_a_step_that_begins_empty_lists_its_own_states_and_what_is_to_be_known_before() -> None:
    now = msgspec.structs.replace(declared("x"), reset_remark="calls are repeated")
    new = one_step(now, name=B, directive=UpgradeDirective(was=A, verb="reset"), x="9")
    states = (StateChange(TOTALS, "begins empty", "", 3, 40),)
    expected = StepChange(B, UpgradeOutcome.RESET, was=A, remarks=("calls are repeated",), states=states)
    assert step_of(decide_upgrade(HELD, identity(x="1"), new, stored(declared("x")))) == expected


def test_a_step_that_continues_lists_its_own_states_with_their_verdicts() -> None:
    new = one_step(declared("x", "y"), name=B, directive=UpgradeDirective(was=A), x="1", y="1")
    states = (StateChange(TOTALS, "after migration", "y is new, NULL where there are entries already", 3, 40),)
    found = step_of(decide_upgrade(HELD, identity(x="1"), new, stored(declared("x"))))
    remarks = ("y begins at checkpoint 7",)
    assert found == StepChange(B, UpgradeOutcome.RENAMED, was=A, remarks=remarks, states=states)


def test_a_column_that_is_given_up_and_not_there_is_reported_next_to_what_begins() -> None:
    directive = UpgradeDirective(drop=("x", "lost", "gone", "own"))
    states = stored(declared("y", key="own"))
    new = one_step(declared("y", key="own"), directive=directive, y="1")
    found = step_of(decide_upgrade(HELD, identity(x="1", gone="1"), new, states))
    assert found.remarks == (
        "y begins at checkpoint 7",
        "`state: {drop: [lost]}` has no effect: the checkpoint has no such column",
    )
    assert step_of(decide_upgrade(HELD, identity(x="1", gone="1"), new)).remarks == ("y begins at checkpoint 7",)


@pytest.mark.parametrize(
    ("applied", "before", "remarks"),
    [
        ((), "1", ("`keep` has no effect: nothing has changed that needs it",)),
        ((), "2", ("another definition made its state: `x` of s",)),
        (("keep",), "1", ("`state: keep` was applied to an earlier change, and has no effect now",)),
    ],
)
def test_the_effect_of_a_directive_is_reported(applied: tuple[str, ...], before: str, remarks: tuple[str, ...]) -> None:
    new = one_step(directive=UpgradeDirective(verb="keep"), x="1")
    assert step_of(decide_upgrade(HELD, identity({A: applied}, x=before), new)).remarks == remarks


def test_a_directive_applied_to_the_step_of_the_new_name_is_not_applied_again() -> None:
    new = one_step(name=B, directive=UpgradeDirective(was=A, verb="reset"), x="1")
    assert step_of(decide_upgrade(HELD, identity({B: ("reset",)}, x="1"), new)).outcome is UpgradeOutcome.RENAMED
    assert step_of(decide_upgrade(HELD, identity({C: ("reset",)}, x="1"), new)).outcome is UpgradeOutcome.RESET


def refused(upgrade: Upgrade) -> UpgradeRefusal:
    (refusal,) = upgrade.refusals
    return refusal


def test_an_applied_directive_is_not_reported_as_without_effect_where_the_step_is_refused() -> None:
    new = one_step(directive=UpgradeDirective(verb="keep"), x="2")
    upgrade = decide_upgrade(HELD, identity({A: ("keep",)}, x="1"), new)
    assert upgrade.steps == (StepChange(A, UpgradeOutcome.REFUSED),)
    assert refused(upgrade).choices == {"keep": KEEP_DOES, "reset": RESET_DOES}


def test_state_that_cannot_be_read_is_refused_and_may_be_emptied() -> None:
    now = msgspec.structs.replace(declared("x", kind=BIGINT), reset_remark="calls are repeated")
    upgrade = decide_upgrade(HELD, identity(x="1"), one_step(now, x="1"), stored(declared("x")))
    reason = "key column k was string and is bigint: keys would be in other key groups"
    assert upgrade.steps == (
        StepChange(A, UpgradeOutcome.REFUSED, states=(StateChange(TOTALS, "incompatible", reason, 3, 40),)),
    )
    assert refused(upgrade) == UpgradeRefusal(
        A,
        f"the state of step 'a' cannot be read by the new definition: state totals: {reason}",
        "To reset it, write `state: reset` in the file, or for a single start --reset a; or restore the old "
        "definition; or add the changed step under a new name next to it",
        {"reset": f"{RESET_DOES}; calls are repeated"},
    )


@pytest.mark.parametrize(
    ("states", "there"), [((), "none"), ((declared("x", name=StateName("rows")), declared("y")), "rows, totals")]
)
def test_a_state_that_the_step_no_longer_has_is_refused_with_those_that_it_has(
    states: tuple[StateDeclaration, ...], there: str
) -> None:
    old = declared("x", name=StateName("seen"))
    refusal = refused(decide_upgrade(HELD, identity(x="1"), one_step(*states, x="1"), stored(old)))
    assert refusal.message.endswith(f": state seen: the step has no such state now (it has: {there})")


def test_an_aggregate_that_is_gone_with_a_whole_state_is_not_given_up_by_itself() -> None:
    seen, new = declared("x", name=StateName("seen")), one_step(declared("x"), x="1")
    assert refused(decide_upgrade(HELD, identity(x="1", y="1"), new, stored(seen))) == UpgradeRefusal(
        A,
        "step 'a' no longer has `y`, and without that it does not have the whole state `seen`, which cannot be "
        "removed by itself",
        "Restore it, or another column that keeps such a state; or add the changed step under a new name next to it. "
        "To reset it, write `state: reset` in the file, or for a single start --reset a",
        {"reset": RESET_DOES},
        ("y",),
    )


def test_an_aggregate_that_is_gone_from_a_state_that_is_there_is_given_up_by_name() -> None:
    old, new = declared("x", "y"), one_step(declared("x"), x="1")
    assert refused(decide_upgrade(HELD, identity(x="1", y="1"), new, stored(old))) == UpgradeRefusal(
        A,
        "step 'a' no longer has `y`, which its state contains",
        "Restore it; or drop it by name, `state: {drop: [y]}` in the file, or for a single start --drop a.y; or "
        "write its new name, `was: {columns: {new_name: y}}`",
        changes=("y",),
    )


def test_of_an_aggregate_that_is_gone_and_another_that_changed_both_are_told_at_once() -> None:
    old, new = declared("x", "y"), one_step(declared("x"), x="2")
    gone, changed = decide_upgrade(HELD, identity(x="1", y="1"), new, stored(old)).refusals
    assert gone.changes == ("y",)
    assert changed == UpgradeRefusal(
        A,
        "the state of step 'a' was made by another definition; what has changed: `x` of s",
        "To reset it, write `state: reset` in the file, or for a single start --reset a; or restore the old "
        "definition, including `where` and `select` in front of the step; or add the changed step under a new name "
        "next to it",
        {"reset": RESET_DOES},
        ("`x` of s",),
    )


# The directives for columns that have nothing but another name


def remedy_of(old: StateDeclaration, now: StateDeclaration) -> str:
    return refused(decide_upgrade(HELD, identity(x="1"), one_step(now, x="1"), stored(old))).remedy


def keyed(*fields: tuple[str, DataType], columns: Mapping[str, str] | None = None) -> StateDeclaration:
    keys = tuple(StateField(name, kind) for name, kind in fields)
    evolution = Evolution(columns=dict(columns or {}))
    return StateDeclaration(TOTALS, StateShape(keys, (), "h", 128), evolution=evolution)


@pytest.mark.parametrize(
    ("old", "now", "pairs"),
    [
        (keyed(("k", STRING)), keyed(("c", STRING)), "c: k"),
        (keyed(("k", STRING), ("n", BIGINT)), keyed(("c", STRING), ("m", BIGINT)), "c: k, m: n"),
        (keyed(("k", STRING), ("n", BIGINT)), keyed(("c", STRING), ("m", STRING)), "c: k"),
        (keyed(("k", STRING), ("n", BIGINT)), keyed(("l", STRING), ("m", BIGINT), columns={"l": "k"}), "m: n"),
    ],
)
def test_a_key_that_may_have_another_name_is_asked_for_first(
    old: StateDeclaration, now: StateDeclaration, pairs: str
) -> None:
    begin = f"If its key was renamed, write `was: {{columns: {{{pairs}}}}}`, which keeps the state. To reset it, write "
    assert remedy_of(old, now).startswith(begin)


@pytest.mark.parametrize(
    ("old", "now"),
    [
        (keyed(("k", STRING)), keyed(("k", BIGINT))),
        (keyed(("k", STRING)), keyed(("c", BIGINT))),
        (keyed(("k", STRING)), keyed(("c", STRING), ("d", STRING))),
        (keyed(("k", STRING), ("c", STRING)), keyed(("c", STRING), ("k", STRING))),
    ],
    ids=["same name", "another type", "one more", "another order"],
)
def test_a_key_that_is_another_one_is_not_said_to_have_another_name(
    old: StateDeclaration, now: StateDeclaration
) -> None:
    assert remedy_of(old, now).startswith("To reset it, write ")


def test_the_key_is_looked_for_in_the_state_that_is_stored() -> None:
    rows = declared("x", name=StateName("rows"))
    now = one_step(rows, keyed(("c", STRING)), x="1")
    refusal = refused(decide_upgrade(HELD, identity(x="1"), now, stored(keyed(("k", STRING)))))
    assert "`was: {columns: {c: k}}`" in refusal.remedy


def test_parts_of_columns_that_are_gone_have_no_word() -> None:
    old, now = (
        StateDeclaration(
            TOTALS,
            StateShape(
                (StateField("k", STRING),),
                (StateField("place", DataType("struct", fields=tuple((one, STRING) for one in parts))),),
                "h",
                128,
            ),
        )
        for parts in (("city", "street"), ("city",))
    )
    assert remedy_of(old, now).startswith("To reset it, write ")


def test_columns_of_rows_that_are_gone_have_a_directive_of_their_own() -> None:
    """They are no aggregates, so meanings know nothing of them."""
    assert remedy_of(declared("x", "y", "z"), declared("x")).startswith(
        "If `y`, `z` was renamed, write `was: {columns: {new_name: y}}`; to drop it, write "
        "`state: {drop: [y, z]}`. To reset it, write "
    )


# Sources and steps that are gone, new, or renamed


NOTHING: Final = Definition({}, {}, {}, frozenset())
FROM_S = completed(7, at=[positions("s", {"t": {0: 5}})])


def test_a_source_that_is_gone_is_refused_with_what_it_would_lose() -> None:
    upgrade = decide_upgrade(FROM_S, IDENTITY, msgspec.structs.replace(NOTHING, sources={B: {"t": 1}}), {})
    assert upgrade.steps == (
        StepChange(S, UpgradeOutcome.REFUSED, source=True),
        StepChange(B, UpgradeOutcome.NEW, source=True),
    )
    assert refused(upgrade) == UpgradeRefusal(
        S,
        "the checkpoint holds positions of source 's', which the pipeline no longer has as a source (it has: b)",
        "If it was renamed write `was: s` at its new name; if it was removed on purpose start once with --drop s, "
        "which gives up its positions: should it be added again, it begins at its `start`",
    )


def test_a_step_that_is_gone_is_refused_with_what_it_would_lose() -> None:
    upgrade = decide_upgrade(HELD, identity(x="1"), NOTHING, stored(declared("x")))
    states = (StateChange(TOTALS, "no directive applies to it", "", 3, 40),)
    assert upgrade.steps == (StepChange(A, UpgradeOutcome.REFUSED, states=states),)
    assert refused(upgrade) == UpgradeRefusal(
        A,
        "the checkpoint holds state of step 'a', which the pipeline no longer has as a step with state (it has: none)",
        "If it was renamed write `was: a` at its new name; if it was removed on purpose start once with --drop a, "
        "which gives up its state: should it be added again, it begins with empty state",
    )


def test_what_is_given_up_is_listed_with_its_states() -> None:
    both = msgspec.structs.replace(FROM_S, states=HELD.states)
    now = msgspec.structs.replace(NOTHING, command_line=CommandLineDirectives(drop=(A, S)))
    upgrade = decide_upgrade(both, identity(x="1"), now, stored(declared("x")))
    assert upgrade.refusals == ()
    states = (StateChange(TOTALS, "given up", "", 3, 40),)
    assert upgrade.steps == (
        StepChange(S, UpgradeOutcome.DROPPED, source=True),
        StepChange(A, UpgradeOutcome.DROPPED, states=states),
    )
    assert upgrade.emptied == {A, S}


def test_only_the_step_that_waits_for_answers_loses_records() -> None:
    waiting = msgspec.structs.replace(handle(7), operator=B, kind=StateKind.LIST, state=IN_FLIGHT.name)
    both = msgspec.structs.replace(HELD, states=(*HELD.states, waiting))
    now = msgspec.structs.replace(NOTHING, command_line=CommandLineDirectives(drop=(A, B)))
    steps = decide_upgrade(both, identity(x="1"), now).steps
    assert [bool(step.remarks) for step in steps] == [False, True]


def test_a_step_that_calls_a_server_is_not_new_because_nothing_waits_in_it() -> None:
    now = Definition({}, {S: {"t": 1}}, {B: (IN_FLIGHT,)}, frozenset())
    assert decide_upgrade(FROM_S, IDENTITY, now).steps == (StepChange(S, UpgradeOutcome.KEPT, source=True),)


def test_a_source_that_is_renamed_continues_and_one_that_is_new_begins() -> None:
    now = Definition({}, {B: {"t": 1}, C: {"t": 1}}, {A: ()}, frozenset(), {B: UpgradeDirective(was=S)})
    upgrade = decide_upgrade(FROM_S, IDENTITY, now)
    assert upgrade.steps == (
        StepChange(B, UpgradeOutcome.RENAMED, source=True, was=S),
        StepChange(A, UpgradeOutcome.NEW),
        StepChange(C, UpgradeOutcome.NEW, source=True),
    )
    assert upgrade.renamed == {B: S}


@pytest.mark.parametrize(
    "fingerprints",
    [{}, {A: means(x="1")}, {A: means("elsewhere", x="1")}],
    ids=["of a step without digests", "that it feeds", "that it does not feed"],
)
def test_whatever_the_checkpoint_has_can_be_renamed(fingerprints: dict[OperatorName, StateFingerprint]) -> None:
    both = msgspec.structs.replace(FROM_S, states=HELD.states)
    old = msgspec.structs.replace(IDENTITY, fingerprints=fingerprints)
    now = Definition({}, {C: {"t": 1}}, {B: ()}, frozenset(), {B: UpgradeDirective(was=A), C: UpgradeDirective(was=S)})
    upgrade = decide_upgrade(both, old, now)
    assert (upgrade.renamed, upgrade.refusals) == ({B: A, C: S}, ())


@pytest.mark.parametrize("edge", ["split -> a", "split.rest -> a", "s -> split.input"])
def test_what_only_rows_in_flight_name_can_be_renamed_next_to_what_else_there_is(edge: str) -> None:
    row = msgspec.structs.replace(handle(7), operator=A, kind=StateKind.INPUT, edges=(edge,))
    checkpoint = msgspec.structs.replace(FROM_S, states=(row,))
    now = Definition(
        {},
        {B: {}, C: {}},
        {},
        frozenset(),
        {B: UpgradeDirective(was=OperatorName("split")), C: UpgradeDirective(was=S)},
    )
    assert decide_upgrade(checkpoint, IDENTITY, now).renamed == {B: "split", C: S}


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        ((A,), "`a`, which gets no records of it afterwards: --keep a"),
        ((A, B), "`a`, `b`, each of which gets no records of it afterwards: --keep a --keep b"),
    ],
)
def test_the_steps_that_a_lost_source_fed_are_asked_for_by_name(steps: tuple[OperatorName, ...], asked: str) -> None:
    """Not those that it did not feed, nor those that are gone, too."""
    held = [msgspec.structs.replace(handle(7), operator=one) for one in (A, B, C)]
    checkpoint = msgspec.structs.replace(FROM_S, states=held)
    fed = dict.fromkeys((*steps, OperatorName("gone")), means(x="1"))
    old = msgspec.structs.replace(IDENTITY, fingerprints=dict.fromkeys((A, B, C), means("r", x="1")) | fed)
    now = Definition(dict(old.fingerprints), {}, dict.fromkeys((A, B, C), ()), frozenset())
    remedy = refused(decide_upgrade(checkpoint, old, now)).remedy
    assert remedy.endswith(f". Then also write --keep or --reset for {asked}")


def test_a_step_that_is_still_there_and_given_up_is_said_to_be_emptied_otherwise() -> None:
    now = msgspec.structs.replace(one_step(x="1"), command_line=CommandLineDirectives(drop=(A,)))
    assert refused(decide_upgrade(HELD, identity(x="1"), now)) == UpgradeRefusal(
        A,
        "--drop a would drop what the file still has as 'a'",
        "Remove it from the file, or use --reset a to start it with empty state",
    )


# Words of the command line


MANY: Final = [OperatorName(f"step{number}") for number in range(20)]


@pytest.mark.parametrize(
    ("steps", "message", "remedy"),
    [
        ([], "none", "Name a step with state"),
        ([B, A], "a, b", "Use one of `a`, `b`"),
        (MANY, ", ".join(sorted(MANY)), "Name a step with state"),
    ],
)
def test_a_word_about_no_step_is_refused_with_those_that_there_are(
    steps: list[OperatorName], message: str, remedy: str
) -> None:
    now = Definition(
        {one: {} for one in steps},
        {},
        {},
        frozenset(),
        command_line=CommandLineDirectives(keep={OperatorName("xyz"): ""}),
    )
    assert refused(decide_upgrade(completed(7), IDENTITY, now)) == UpgradeRefusal(
        OperatorName("xyz"), f"--keep xyz: there is no step with state of that name (there are: {message})", remedy
    )


@pytest.mark.parametrize(
    ("sources", "message", "remedy"),
    [
        ([], "nothing", "Remove it from the command"),
        ([S], "s", "Use one of `s`"),
        (MANY, ", ".join(sorted(MANY)), "Remove it from the command"),
    ],
)
def test_what_was_never_there_cannot_be_given_up(sources: list[OperatorName], message: str, remedy: str) -> None:
    checkpoint = completed(7, at=[positions(one, {"t": {0: 5}}) for one in sources])
    there = {one: {"t": 1} for one in sources}
    now = Definition({}, there, {}, frozenset(), command_line=CommandLineDirectives(drop=(OperatorName("xyz"),)))
    assert refused(decide_upgrade(checkpoint, IDENTITY, now)) == UpgradeRefusal(
        OperatorName("xyz"), f"--drop xyz: checkpoint 7 holds nothing of it (it has: {message})", remedy
    )


def test_rows_in_flight_need_their_edge() -> None:
    row = msgspec.structs.replace(handle(7), operator=A, kind=StateKind.INPUT, edges=("s -> a",))
    upgrade = decide_upgrade(msgspec.structs.replace(FROM_S, states=(row,)), IDENTITY, one_step(x="1"))
    (told,) = [one.message for one in upgrade.refusals if one.name == A]
    assert told == (
        "the checkpoint holds rows in flight on s -> a, a connection by key that the pipeline no longer has "
        "(it has: none)"
    )
