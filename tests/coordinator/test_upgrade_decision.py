"""What becomes of a checkpoint when the pipeline is another one now, against a model of plain rules."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest

from tests.coordinator.values import IDENTITY, completed, handle, positions
from tidegate.cli.options import read_directives
from tidegate.coordinator.clusters import derive_identity
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import refuse_upgrade
from tidegate.coordinator.types import CompletedCheckpoint, StateKind
from tidegate.coordinator.upgrade import (
    APPLIED_MAX,
    CommandLineDirectives,
    Definition,
    Upgrade,
    UpgradeOutcome,
    UpgradeRefusal,
    WrittenState,
)
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.datatypes import BIGINT
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, StateName
from tidegate.operators.calls.spec import IN_FLIGHT
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.operators.latest_rows import declare_latest
from tidegate.plan.graph import UpgradeDirective
from tidegate.user_code.describe import CodeMark

NAMES = [OperatorName(name) for name in ("a", "b", "c", "d")]
SOURCES = [OperatorName(name) for name in ("s", "t")]
COLUMNS = ("x", "y")


def name_of(one: str) -> OperatorName:
    return OperatorName(one)


def random_meaning(dice: random.Random) -> StateFingerprint:
    """Which records, and one or two aggregates: a few digests, so that they are often the same."""
    parts = {"the choice of records": f"2:{dice.randrange(2)}"}
    for column in COLUMNS:
        if dice.random() < 0.6:
            parts[f"`{column}`"] = f"2:{dice.randrange(2)}"
    return {"s": parts}


def random_checkpoint(dice: random.Random) -> tuple[CompletedCheckpoint, Identity]:
    sources = [one for one in SOURCES if dice.random() < 0.8] or SOURCES[:1]
    held = [one for one in NAMES if dice.random() < 0.5]
    checkpoint = completed(
        7,
        at=[positions(one, {one: {0: 5}}) for one in sources],
        states=[msgspec.structs.replace(handle(7, subtask=0), operator=one) for one in held],
    )
    applied = {one: (dice.choice(["keep", "reset", "keep: old"]),) for one in held if dice.random() < 0.3}
    identity = msgspec.structs.replace(
        IDENTITY, fingerprints={one: random_meaning(dice) for one in held}, applied_directives=applied
    )
    return checkpoint, identity


def random_definition(dice: random.Random) -> Definition:
    sources: dict[OperatorName, Mapping[str, int]] = {one: {one: 1} for one in SOURCES if dice.random() < 0.8}
    steps = [one for one in NAMES if dice.random() < 0.5]
    directives: dict[OperatorName, UpgradeDirective] = {}
    for one in steps:
        if dice.random() < 0.6:
            was = dice.choice([name for name in NAMES if name not in steps] or [name_of("")])
            taken = {one.was for one in directives.values()}
            directives[one] = UpgradeDirective(
                was=was if was not in taken and dice.random() < 0.6 else name_of(""),
                verb=dice.choice(["", "keep", "reset"]),
                note=dice.choice(["", "old", "new"]),
                drop=tuple(column for column in COLUMNS if dice.random() < 0.3),
            )
    command_line = CommandLineDirectives(
        keep={one: "" for one in steps if dice.random() < 0.1},
        drop=tuple(one for one in NAMES if one not in steps and dice.random() < 0.4),
    )
    fingerprints = {one: random_meaning(dice) for one in steps}
    return Definition(fingerprints, sources, dict.fromkeys(steps, ()), frozenset(), directives, command_line)


class Model:
    """The rules, one by one: for each name in the checkpoint what becomes of it, or None where that is refused."""

    def __init__(self, checkpoint: CompletedCheckpoint, identity: Identity, now: Definition) -> None:
        self.checkpoint, self.identity, self.now = checkpoint, identity, now
        self.held = {one.operator for one in checkpoint.states}
        self.read = {one.source for one in checkpoint.positions}
        known = self.held | self.read | {name_of("s")}  # what a meaning names is known, too
        self.names = {
            directive.was: one
            for one, directive in now.directives.items()
            if directive.was and directive.was in known and one not in known
        }

    def outcome(self, old: OperatorName) -> UpgradeOutcome | None:
        name = self.names.get(old, old)
        here = self.now.sources if old in self.read else self.now.states
        if name not in here:
            return UpgradeOutcome.DROPPED if old in self.now.command_line.drop else None
        if old in self.now.command_line.drop:
            return None
        if old not in self.read:
            verb = self.verb(old, name)
            if verb == "reset":
                return UpgradeOutcome.RESET
            if not self.means_the_same(old, name, kept=verb == "keep"):
                return None
        return UpgradeOutcome.KEPT if name == old else UpgradeOutcome.RENAMED

    def verb(self, old: OperatorName, name: OperatorName) -> str:
        found = []
        if name in self.now.command_line.keep:
            found.append(("keep", "--keep"))
        directive = self.now.directives.get(name)
        if directive is not None and directive.verb:
            found.append((directive.verb, f"{directive.verb}: {directive.note}" if directive.note else directive.verb))
        applied = {text for one in (old, name) for text in self.identity.applied_directives.get(one, ())}
        return next((verb for verb, text in found if text not in applied), "")

    def means_the_same(self, old: OperatorName, name: OperatorName, *, kept: bool) -> bool:
        before, after = self.identity.fingerprints[old]["s"], self.now.fingerprints[name]["s"]
        directive = self.now.directives.get(name, UpgradeDirective())
        for part, digest in before.items():
            if part not in after:
                if part.strip("`") not in directive.drop:
                    return False
            elif after[part] != digest and not kept:
                return False
        return True


@pytest.mark.parametrize("seed", range(40))
def test_the_decision_is_that_of_plain_rules(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(60):
        checkpoint, identity = random_checkpoint(dice)
        now = random_definition(dice)
        model = Model(checkpoint, identity, now)
        upgrade = decide_upgrade(checkpoint, identity, now)
        expected = {old: model.outcome(old) for old in (*model.held, *model.read)}
        unknown = [
            one for one in now.command_line.drop if one not in expected and one not in identity.applied_directives
        ]
        assert bool(upgrade.refusals) is (None in expected.values() or bool(unknown))
        if not upgrade.refusals:
            judge_taken(checkpoint, now, model, upgrade, {old: one for old, one in expected.items() if one is not None})


def judge_taken(
    checkpoint: CompletedCheckpoint,
    now: Definition,
    model: Model,
    upgrade: Upgrade,
    expected: Mapping[str, UpgradeOutcome],
) -> None:
    found = {step.was or step.name: step.outcome for step in upgrade.steps if step.outcome is not UpgradeOutcome.NEW}
    assert found == expected
    gone = {old for old, one in expected.items() if one in (UpgradeOutcome.DROPPED, UpgradeOutcome.RESET)}
    names = {old: model.names.get(name_of(old), name_of(old)) for old in expected}
    states = upgrade.map_states(checkpoint.states)
    assert {one.operator for one in states} == {names[old] for old in model.held - gone}
    assert {one.source for one in upgrade.map_positions(checkpoint.positions)} == {
        names[old] for old in model.read - gone
    }
    assert {one.operator for one in states} <= now.states.keys()
    new = {step.name for step in upgrade.steps if step.outcome is UpgradeOutcome.NEW}
    assert new == {*now.sources, *now.states} - {names[old] for old in expected}


@pytest.mark.parametrize("seed", range(20))
def test_what_was_taken_once_is_taken_again_without_a_word_being_used(seed: int) -> None:
    """From the first checkpoint on: with the same file and the same command nothing is renamed, reset or refused."""
    dice = random.Random(1000 + seed)
    taken = 0
    while taken < 20:
        checkpoint, identity = random_checkpoint(dice)
        now = random_definition(dice)
        upgrade = decide_upgrade(checkpoint, identity, now)
        if upgrade.refusals:
            continue
        taken += 1
        after = completed(
            8,
            at=[positions(one, {one: {0: 6}}) for one in now.sources],
            states=[msgspec.structs.replace(handle(8, subtask=0), operator=one) for one in now.states],
        )
        later = msgspec.structs.replace(
            identity,
            fingerprints=dict(now.fingerprints),
            applied_directives=upgrade.applied_directives,
            begun=upgrade.begun,
        )
        again = decide_upgrade(after, later, now)
        assert not again.refusals
        assert {step.outcome for step in again.steps} <= {UpgradeOutcome.KEPT}
        assert again.applied_directives == upgrade.applied_directives


def meaning_of(**columns: str) -> dict[OperatorName, StateFingerprint]:
    return {name_of("a"): {"s": {f"`{name}`": f"2:{digest}" for name, digest in columns.items()}}}


def one_step(directive: UpgradeDirective | None = None, **columns: str) -> Definition:
    directives = {} if directive is None else {name_of("a"): directive}
    return Definition(meaning_of(**columns), {}, {name_of("a"): ()}, frozenset(), directives)


HELD = completed(7, states=[msgspec.structs.replace(handle(7, subtask=0), operator=name_of("a"))])
MEANT = msgspec.structs.replace(IDENTITY, fingerprints=meaning_of(x="1"))


def test_an_aggregate_that_is_added_begins_at_the_checkpoint_and_the_journal_remembers_where() -> None:
    added = decide_upgrade(HELD, MEANT, one_step(x="1", y="2"))
    assert not added.refusals
    assert added.begun == {"a": {"y": 7}}
    later = msgspec.structs.replace(MEANT, fingerprints=meaning_of(x="1", y="2"), begun=added.begun)
    assert decide_upgrade(HELD, later, one_step(x="1", y="2")).begun == {"a": {"y": 7}}
    renamed = decide_upgrade(HELD, later, one_step(UpgradeDirective(columns={"z": "y"}), x="1", z="2"))
    assert not renamed.refusals
    assert renamed.begun == {"a": {"z": 7}}
    assert decide_upgrade(HELD, later, one_step(UpgradeDirective(verb="reset"), x="1", y="2")).begun == {"a": {"": 7}}
    assert decide_upgrade(HELD, later, one_step(UpgradeDirective(drop=("y",)), x="1")).begun == {}


def test_an_aggregate_that_is_gone_has_to_be_named() -> None:
    two = msgspec.structs.replace(MEANT, fingerprints=meaning_of(x="1", y="2"))
    (refusal,) = decide_upgrade(HELD, two, one_step(x="1")).refusals
    assert "`state: {drop: [y]}`" in refusal.remedy
    assert "new_name: y" in refusal.remedy
    assert not decide_upgrade(HELD, two, one_step(UpgradeDirective(drop=("y",)), x="1")).refusals


def test_a_column_under_another_name_that_also_means_something_else_is_a_change_of_meaning() -> None:
    directive = UpgradeDirective(columns={"y": "x"})
    assert not decide_upgrade(HELD, MEANT, one_step(directive, y="1")).refusals
    (refusal,) = decide_upgrade(HELD, MEANT, one_step(directive, y="2")).refusals
    assert refusal.changes == ("`y` of s",)


def test_applied_directives_are_bounded_and_those_of_the_file_stay() -> None:
    many = msgspec.structs.replace(
        MEANT, applied_directives={name_of("a"): tuple(f"keep: {n}" for n in range(APPLIED_MAX))}
    )
    applied = decide_upgrade(HELD, many, one_step(UpgradeDirective(verb="keep", note="0"), x="1")).applied_directives[
        name_of("a")
    ]
    assert len(applied) == APPLIED_MAX
    assert applied[-1] == "keep: 0"
    again = decide_upgrade(HELD, many, one_step(UpgradeDirective(verb="keep", note="last"), x="1")).applied_directives[
        name_of("a")
    ]
    assert (len(again), again[-1], again[0]) == (APPLIED_MAX, "keep: last", "keep: 1")


def test_the_first_start_records_its_directives_as_applied_so_that_a_later_change_needs_another() -> None:
    upgrade = decide_upgrade(None, None, one_step(UpgradeDirective(verb="reset"), x="1"))
    assert upgrade.applied_directives == {"a": ("reset",)}
    later = msgspec.structs.replace(MEANT, applied_directives=upgrade.applied_directives)
    assert (
        decide_upgrade(HELD, later, one_step(UpgradeDirective(verb="reset"), x="1")).steps[0].outcome
        is UpgradeOutcome.KEPT
    )
    (refusal,) = decide_upgrade(HELD, later, one_step(UpgradeDirective(verb="reset"), x="2")).refusals
    assert "`state: reset` was applied to an earlier change" in refusal.remedy


def test_entries_of_older_releases_have_no_fingerprints_and_no_applied_directives() -> None:
    old = msgspec.structs.replace(IDENTITY, fingerprints={})
    assert not decide_upgrade(HELD, old, one_step(x="9")).refusals
    changed = one_step(UpgradeDirective(verb="reset"), x="9")
    assert decide_upgrade(HELD, old, changed).steps[0].outcome is UpgradeOutcome.RESET


def test_what_is_appended_again_before_the_first_checkpoint_keeps_what_its_states_mean() -> None:
    now = msgspec.structs.replace(
        IDENTITY, parallelism=9, fingerprints=meaning_of(x="2"), applied_directives={name_of("a"): ("keep",)}
    )
    old = msgspec.structs.replace(MEANT, begun={name_of("a"): {"x": CheckpointId(3)}})
    again = derive_identity(old, now)
    assert (again.fingerprints, again.applied_directives, again.parallelism) == (
        MEANT.fingerprints,
        {},
        MEANT.parallelism,
    )
    assert again.begun == old.begun


def test_rows_in_flight_follow_the_edge_and_lists_the_step() -> None:
    row = msgspec.structs.replace(
        handle(7, "a", subtask=0), kind=StateKind.INPUT, edges=("a.input -> a",), subtask=SlotIndex(1)
    )
    listed = msgspec.structs.replace(HELD.states[0], kind=StateKind.LIST)
    upgrade = Upgrade(renamed={name_of("b"): name_of("a")})
    assert upgrade.map_states((row, listed)) == (row, msgspec.structs.replace(listed, operator=name_of("b")))
    gone = Upgrade(emptied=frozenset({name_of("a")}))
    assert gone.map_states((row, listed)) == (row,)


def test_records_that_wait_for_answers_are_not_given_up_without_saying_that_they_are_lost() -> None:
    waiting = msgspec.structs.replace(HELD.states[0], kind=StateKind.LIST, state=IN_FLIGHT.name)
    checkpoint = completed(7, states=[waiting])
    nothing = Definition({}, {}, {}, frozenset())
    (refusal,) = decide_upgrade(checkpoint, MEANT, nothing).refusals
    assert "--drop loses them; to lose none, run the old file until none wait" in refusal.remedy
    command_line = msgspec.structs.replace(nothing, command_line=CommandLineDirectives(drop=(name_of("a"),)))
    (step,) = decide_upgrade(checkpoint, MEANT, command_line).steps
    assert step.remarks == ("the records that wait for their answers are lost",)
    kept = Definition(
        {}, {}, {name_of("a"): (IN_FLIGHT,)}, frozenset(), command_line=CommandLineDirectives(reset={name_of("a"): ""})
    )
    (refusal,) = decide_upgrade(checkpoint, MEANT, kept).refusals
    assert refusal.message.startswith("--reset a: there is no step with state of that name")


def test_several_refusals_are_sentences() -> None:
    refusals = (
        UpgradeRefusal(name_of("a"), "the one is gone", "Put it back", {"reset": "it is empty"}),
        UpgradeRefusal(name_of("b"), "the other, too", "Put it back"),
    )
    told = refuse_upgrade(Upgrade(refusals=refusals)).message
    assert told == "the one is gone. reset: it is empty. Put it back. The other, too. Put it back"


def test_a_source_that_is_still_there_is_not_said_to_begin_with_empty_state() -> None:
    checkpoint = completed(7, at=[positions("s", {"t": {0: 5}})])
    now = Definition(
        {},
        {name_of("s"): {"t": 1}},
        {},
        frozenset(),
        command_line=CommandLineDirectives(drop=(name_of("s"), name_of("ss"))),
    )
    still, unknown = decide_upgrade(checkpoint, MEANT, now).refusals
    assert still.remedy == "Remove it from the file"
    assert unknown.remedy == "Did you mean `s`?"


def test_a_refused_source_names_the_directives_that_the_steps_that_it_fed_will_need() -> None:
    """Else they are asked for one start later, step by step."""
    checkpoint = completed(7, at=[positions("s", {"t": {0: 5}})], states=HELD.states)
    replaced = msgspec.structs.replace(one_step(x="1"), fingerprints={name_of("a"): {"new": {"`x`": "2:1"}}})
    replaced = msgspec.structs.replace(replaced, sources={name_of("new"): {"t": 1}})
    (refusal,) = decide_upgrade(checkpoint, MEANT, replaced).refusals
    assert "--drop s" in refusal.remedy
    assert refusal.remedy.endswith("gets no records of it afterwards: --keep a")
    said = msgspec.structs.replace(replaced, command_line=CommandLineDirectives(keep={name_of("a"): ""}))
    (refusal,) = decide_upgrade(checkpoint, MEANT, said).refusals
    assert "--keep" not in refusal.remedy
    dropped = msgspec.structs.replace(
        replaced, command_line=CommandLineDirectives(keep={name_of("a"): ""}, drop=(name_of("s"),))
    )
    assert not decide_upgrade(checkpoint, MEANT, dropped).refusals


def test_a_step_that_nobody_has_written_is_neither_new_nor_a_choice() -> None:
    ours = OperatorName("dead_letters.bytes")
    same = Definition(meaning_of(x="1"), {}, {name_of("a"): (), ours: ()}, frozenset())
    assert ours not in {step.name for step in decide_upgrade(HELD, MEANT, same).steps}
    gone = Definition({}, {}, {name_of("b"): (), ours: ()}, frozenset())
    assert any("(it has: b)" in one.message for one in decide_upgrade(HELD, MEANT, gone).refusals)


@pytest.mark.parametrize("name", ["dead_letters.retry", "dead_letters.bytes"])
def test_what_dead_letters_hold_is_given_up_by_the_words_that_a_refusal_names(name: str) -> None:
    """Without the setting, letters that were replayed, or that wait for their bytes, would be lost."""
    held = [positions("s", {"s": {0: 5}})] + ([positions(name, {"again": {0: 5}})] if name.endswith("retry") else [])
    states = [msgspec.structs.replace(handle(7, subtask=0), operator=OperatorName(name))] if name.endswith("s") else []
    checkpoint = completed(7, at=held, states=states)
    now = Definition({}, {name_of("s"): {"s": 1}}, {}, frozenset())
    (refusal,) = decide_upgrade(checkpoint, IDENTITY, now).refusals
    assert refusal.remedy == (f"Restore `dead_letters`, or start once with --drop {name}, which drops them")
    said = msgspec.structs.replace(now, command_line=read_directives((), (), (name,)))
    assert not decide_upgrade(checkpoint, IDENTITY, said).refusals


def test_an_aggregate_of_a_step_that_is_refused_is_not_said_to_begin() -> None:
    upgrade = decide_upgrade(HELD, MEANT, one_step(x="other", y="2"))
    assert upgrade.refusals
    assert [step.remarks for step in upgrade.steps if step.name == "a"] == [()]


def test_a_name_that_the_checkpoint_has_for_something_else_is_taken_over_by_two_starts() -> None:
    """As refusals advise, the changed step was written next to the old one; now it is to have the old one's name."""
    totals, second = name_of("totals"), name_of("totals_v2")
    states = [msgspec.structs.replace(handle(7, subtask=0), operator=one) for one in (totals, second)]
    checkpoint = completed(7, at=[positions("s", {"s": {0: 5}})], states=states)
    meaning: StateFingerprint = {"s": {"the choice of records": "2:0"}}
    identity = msgspec.structs.replace(IDENTITY, fingerprints={totals: meaning, second: meaning})
    now = Definition(
        {totals: meaning},
        {name_of("s"): {"s": 1}},
        {totals: ()},
        frozenset(),
        {totals: UpgradeDirective(was=second)},
        CommandLineDirectives(),
    )
    (refusal,) = decide_upgrade(checkpoint, identity, now).refusals
    assert (
        refusal.message == "`was: totals_v2` at 'totals' cannot be followed: checkpoint 7 holds a 'totals' of its own"
    )
    assert "leave 'totals_v2' under its name, and start once with --drop totals; after a checkpoint" in refusal.remedy


def with_table(command_line: CommandLineDirectives | None = None, verb: str = "", source: str = "s") -> Definition:
    """A step `a` that holds a table of the source `s`."""
    declared = declare_latest((("id", BIGINT),), (("x", BIGINT),), 128)
    fingerprints: dict[OperatorName, StateFingerprint] = {name_of("a"): {source: {"what is kept": "2:1"}}}
    return Definition(
        fingerprints,
        {name_of(source): {name_of("s"): 1}},
        {name_of("a"): (declared,)},
        frozenset(),
        {name_of("a"): UpgradeDirective(verb=verb)} if verb else {},
        command_line or CommandLineDirectives(),
    )


def test_a_table_that_is_added_next_to_a_source_that_continues_needs_a_directive() -> None:
    """The lookup would find nothing of what the source had read before, without any message."""
    checkpoint = completed(7, at=[positions(name_of("s"), {name_of("s"): {0: 5}})])
    identity = msgspec.structs.replace(IDENTITY, fingerprints={}, applied_directives={})
    (refusal,) = decide_upgrade(checkpoint, identity, with_table()).refusals
    assert "step 'a' is new and needs all rows of a table, but `s` continues where it was" in refusal.message
    assert refusal.remedy.startswith("Let it read a source of another name, which begins at its `start`. ")
    assert "`state: reset`" in refusal.remedy
    reset = CommandLineDirectives(reset={name_of("a"): ""})
    for now in (with_table(reset), with_table(verb="reset")):
        upgrade = decide_upgrade(checkpoint, identity, now)
        assert not upgrade.refusals
        assert [step.outcome for step in upgrade.steps if step.name == "a"] == [UpgradeOutcome.NEW]
    drop = with_table(CommandLineDirectives(drop=(name_of("s"),)), source="t")
    assert not decide_upgrade(checkpoint, identity, drop).refusals
    begun = msgspec.structs.replace(identity, fingerprints=with_table().fingerprints)
    assert not decide_upgrade(checkpoint, begun, with_table()).refusals


def test_a_table_that_is_added_behind_a_step_that_continues_needs_a_directive() -> None:
    held = completed(7, states=[msgspec.structs.replace(handle(7), operator=name_of("b"))])
    identity = msgspec.structs.replace(IDENTITY, fingerprints={}, applied_directives={})
    now = with_table(source="b")
    now = msgspec.structs.replace(
        now,
        fingerprints={**now.fingerprints, name_of("b"): {}},
        sources={},
        states={**now.states, name_of("b"): ()},
    )
    (refusal,) = decide_upgrade(held, identity, now).refusals
    assert "step 'a' is new and needs all rows of a table, but `b` continues where it was" in refusal.message
    assert refusal.remedy.startswith("Let it read a source of another name, through steps of other names, ")
    emptied = msgspec.structs.replace(now, command_line=CommandLineDirectives(reset={name_of("b"): ""}))
    assert not decide_upgrade(held, identity, emptied).refusals


def test_a_table_of_another_definition_is_not_to_be_added_next_to_its_source() -> None:
    """A step under a new name would be refused, because it needs what the source has read before."""
    held = completed(7, states=[msgspec.structs.replace(handle(7), operator=name_of("a"))])
    other: dict[OperatorName, StateFingerprint] = {name_of("a"): {"s": {"what is kept": "2:2"}}}
    identity = msgspec.structs.replace(IDENTITY, fingerprints=other, applied_directives={})
    (refusal,) = decide_upgrade(held, identity, with_table()).refusals
    assert refusal.remedy.endswith("; or add the changed step under a new name, with a source of another name")


PAGES = StateName("pages")


def held_states(*states: str) -> CompletedCheckpoint:
    handles = [msgspec.structs.replace(handle(7), operator=name_of("a"), state=StateName(state)) for state in states]
    return completed(7, states=handles)


def test_a_state_that_a_user_has_named_is_given_up_by_name_and_the_others_stay() -> None:
    held = held_states("clicks", "pages")
    two = msgspec.structs.replace(MEANT, fingerprints=meaning_of(clicks="1", pages="1"))
    headers = {
        (name_of("a"), PAGES): WrittenState(declare_latest((("id", BIGINT),), (("x", BIGINT),), 128).shape, 3, 40)
    }
    (refusal,) = decide_upgrade(held, two, one_step(clicks="1"), headers).refusals
    assert "no longer has `pages`, which its state contains" in refusal.message
    assert "`state: {drop: [pages]}`" in refusal.remedy
    assert "new_name" not in refusal.remedy
    for stored in (headers, None):
        upgrade = decide_upgrade(held, two, one_step(UpgradeDirective(drop=("pages",)), clicks="1"), stored)
        assert not upgrade.refusals
        assert [one.state for one in upgrade.map_states(held.states)] == ["clicks"]


def test_other_code_is_reported_and_refuses_nothing() -> None:
    first, second = CodeMark("own:Step", "1" * 64), CodeMark("own:Step", "2" * 64)
    before = msgspec.structs.replace(MEANT, code={name_of("a"): first, name_of("gone"): first})
    now = msgspec.structs.replace(one_step(x="1"), code={name_of("a"): first, name_of("new"): second})
    assert decide_upgrade(HELD, before, now).code == ()
    changed = msgspec.structs.replace(now, code={name_of("a"): second})
    upgrade = decide_upgrade(HELD, before, changed)
    assert not upgrade.refusals
    assert [str(one) for one in upgrade.code] == [
        "the code of a has changed since checkpoint 7: it was own:Step 111111111111, and is own:Step 222222222222"
    ]
    assert derive_identity(before, msgspec.structs.replace(MEANT, code=changed.code)).code == before.code


def test_changes_of_files_are_reported_by_name_and_refuse_nothing() -> None:
    one, two = "1" * 64, "2" * 64
    before = msgspec.structs.replace(MEANT, files={"model.bin": one, "old.whl": one, "same.bin": one})
    now = msgspec.structs.replace(one_step(x="1"), files={"model.bin": two, "new.whl": two, "same.bin": one})
    upgrade = decide_upgrade(HELD, before, now)
    assert not upgrade.refusals
    assert [str(one) for one in upgrade.files] == [
        "the file model.bin has changed since checkpoint 7: it was 111111111111, and is 222222222222",
        "the file new.whl is new since checkpoint 7",
        "the file old.whl is gone since checkpoint 7",
    ]
    assert derive_identity(before, msgspec.structs.replace(MEANT, files=now.files)).files == before.files


def test_the_code_of_a_renamed_step_is_compared_with_that_of_its_former_name() -> None:
    first, second = CodeMark("own:Step", "1" * 64), CodeMark("own:Step", "2" * 64, version=2)
    before = msgspec.structs.replace(MEANT, code={name_of("a"): first})
    directives = {name_of("b"): UpgradeDirective(was=name_of("a"))}
    now = Definition({}, {}, {name_of("b"): ()}, frozenset(), directives, code={name_of("b"): second})
    (change,) = decide_upgrade(HELD, before, now).code
    assert (change.name, change.was, change.now) == ("b", first, second)
    assert str(change).endswith("and is own:Step 222222222222 version 2")
