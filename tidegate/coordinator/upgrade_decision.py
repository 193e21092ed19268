"""Decides which steps continue from a checkpoint, which begin empty, and what is refused. Pure.

`decide_upgrade` serves a start, `validate` and `upgrade`, so that they cannot disagree. State continues under the name
of its step, or under the name that `was` gives. What the two definitions do not determine needs an upgrade directive
(ADR 53). If there is none, the change is refused, with the choices and the effect of each on the output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from tidegate.config.fields.steps import KEEP, RESET
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.coordinator.upgrade import (
    CodeChange,
    Definition,
    FileChange,
    StateChange,
    StepChange,
    StoredStates,
    Upgrade,
    UpgradeOutcome,
    UpgradeRefusal,
    advise,
    derive_applied,
    derive_dropped_topics,
    directives_for,
    render_directive,
)
from tidegate.ids import CheckpointId, OperatorName, StateName
from tidegate.operators.builtin.dead_letters import READ_BACK
from tidegate.operators.builtin.retry import RETRY
from tidegate.operators.calls.spec import IN_FLIGHT
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.plan.evolving import state_columns
from tidegate.plan.graph import UpgradeDirective, derive_edge_names, derive_former_plan
from tidegate.plan.state_fingerprints import FingerprintChanges, columns_of, compare_fingerprints, derive_fingerprints
from tidegate.state.compatibility import GONE
from tidegate.state.verdict import Fit, Verdict, judge

WHOLE: Final = ""
"""Key in `Identity.begun` for the whole step instead of one aggregate."""
_LOST: Final = (
    ". These are records that wait for answers: --drop loses them; to lose none, run the old file until none wait, "
    "then stop it"
)
EMPTY: Final = "begins empty"
GIVEN_UP: Final = "given up"
UNDECIDED: Final = "no directive applies to it"
_NO_DIRECTIVE: Final = UpgradeDirective()
_FINAL: Final = (
    "Put the old definition back, end the pipeline once with SIGTERM (its final checkpoint leaves nothing in flight), "
    "then change it"
)
_KEEP_DOES: Final = (
    "the new definition continues with the existing state, so results mix both: what was counted, kept or seen before "
    "the "
    "change stays as it is"
)
_RESET_DOES: Final = (
    "the step starts with empty state at the checkpoint: what it has counted, kept or seen is lost, "
    "nothing is read again, and the other steps continue"
)

_RESET_OF_NEW_DOES: Final = (
    "it begins empty, with the rows that are written from now on; totals are then without the older rows, and a change "
    "of one fails as INCONSISTENT_CHANGE"
)


def decide_upgrade(
    checkpoint: CompletedCheckpoint | None,
    identity: Identity | None,
    now: Definition,
    stored: StoredStates | None = None,
) -> Upgrade:
    """Decides how the current pipeline continues from a checkpoint, whose identity is `identity`.

    `stored` are the headers of all or some of its states; without them only names and fingerprints count. Raises
    nothing: a start must refuse an upgrade with `refusals`.
    """
    if checkpoint is None or identity is None:
        refusals = _check_names(now, set(), set(), "there is no checkpoint that could hold anything of it")
        return Upgrade(applied_directives=derive_applied({}, now, {}), refusals=tuple(refusals))
    return _Decision(checkpoint, identity, now, {} if stored is None else stored).decide()


def _check_names(
    now: Definition, known: set[OperatorName], dropped: set[OperatorName], held: str
) -> Iterator[UpgradeRefusal]:
    """Refuses command-line directives for unknown names.

    `known` are the names that the checkpoint has, `held` is the reason why another one cannot be dropped. Repeating a
    drop is allowed, because commands are repeated.
    """
    command_line = now.command_line
    for verb, names in ((KEEP, command_line.keep), (RESET, command_line.reset)):
        for name in names:
            if name not in now.fingerprints:
                there = ", ".join(sorted(now.fingerprints)) or "none"
                remedy = derive_suggestion(name, now.fingerprints, otherwise="name a step with state")
                message = f"--{verb} {name}: there is no step with state of that name (there are: {there})"
                yield UpgradeRefusal(name, message, remedy[0].upper() + remedy[1:])
    for name, column in command_line.columns:
        if name in now.sources:
            continue
        declared = now.states.get(name)
        if declared is None or column in state_columns(one.shape for one in declared):
            there = "no step with state of that name" if declared is None else f"still a `{column}` in that step"
            yield UpgradeRefusal(
                name, f"--drop {name}.{column}: there is {there}", "Remove it from the command, or from the file"
            )
    for name in command_line.drop:
        if name in known or name in dropped:
            continue
        remedy = derive_suggestion(name, known, otherwise="remove it from the command")
        yield UpgradeRefusal(name, f"--drop {name}: {held}", remedy[0].upper() + remedy[1:])


class _Decision:
    """One decision in progress."""

    def __init__(
        self, checkpoint: CompletedCheckpoint, identity: Identity, now: Definition, stored: StoredStates
    ) -> None:
        self._checkpoint = checkpoint
        self._identity = identity
        self._now = now
        self._stored = stored
        self._sources = sorted({one.source for one in checkpoint.positions})
        self._held = sorted({one.operator for one in checkpoint.states if not one.in_flight})
        self._renamed = _derive_renamed(checkpoint, identity, now)
        self._names = {old: new for new, old in self._renamed.items()}
        self._steps: list[StepChange] = []
        self._refusals: list[UpgradeRefusal] = []
        self._emptied: set[OperatorName] = set()
        self._given_up: set[tuple[OperatorName, StateName]] = set()
        self._left: set[tuple[OperatorName, str]] = set()
        self._begun: dict[OperatorName, dict[str, CheckpointId]] = {}
        self._fingerprints, self._edges = _under_former_names(now, self._renamed)
        here = {*now.sources, *now.states, *now.command_line.drop}
        self._missing = {old for old in (*self._sources, *self._held) if self._names.get(old, old) not in here}
        """Names refused because they are gone; the steps that they fed are not also refused for that."""

    def decide(self) -> Upgrade:
        for source in self._sources:
            self._source(source)
        for step in self._held:
            self._step(step)
        self._rows_in_flight()
        self._new_ones()
        self._check_command_line()
        return Upgrade(
            steps=tuple(self._steps),
            refusals=tuple(self._refusals),
            renamed={new: old for new, old in self._renamed.items() if new in self._of_now(self._renamed)},
            emptied=frozenset(self._emptied),
            given_up=frozenset(self._given_up),
            left=frozenset(self._left),
            code=tuple(self._code_changes()),
            files=tuple(self._file_changes()),
            edges={new: old for new, old in self._edges.items() if new != old},
            applied_directives=derive_applied(self._identity.applied_directives, self._now, self._names),
            begun=self._carry_begun(),
        )

    # -- sources ---------------------------------------------------------------------------------------------------

    def _source(self, old: OperatorName) -> None:
        name, now = self._names.get(old, old), self._now
        if name not in now.sources:
            self._gone(old, "positions of source", "source", now.sources, source=True)
            return
        if old in now.command_line.drop:
            self._still_there(old)
        known = {at.topic for one in self._checkpoint.positions if one.source == old for at, _ in one.next_offsets}
        gone = known - now.sources[name].keys()
        applied = self._identity.applied_directives
        named = derive_dropped_topics(now.directives.get(name), (*applied.get(old, ()), *applied.get(name, ())))
        for topic in sorted((known - gone) & named):
            message = f"--drop {name}.{topic}: the source still reads this topic"
            self._refuse(name, message, "Remove it from the command, or the topic from the source")
        dropped = gone & named if gone != known else set()
        self._left |= {(old, topic) for topic in dropped}
        for topic in sorted(gone - dropped):
            others = (
                f"start once with --drop {name}.{topic}, which gives up these positions; or " if gone != known else ""
            )
            self._refuse(
                name,
                f"source {str(name)!r} no longer reads topic {topic}, but the checkpoint holds positions of it",
                f"Restore the topic; {others}give the changed source a new name and start once with --drop {old}: its "
                "positions are dropped, and the new source begins at its `start`",
            )
        outcome, was = _continued(name, old)
        remarks = tuple(f"its positions in topic {topic} are given up" for topic in sorted(dropped))
        self._steps.append(StepChange(name, outcome, source=True, was=was, remarks=remarks))

    # -- steps -----------------------------------------------------------------------------------------------------

    def _step(self, old: OperatorName) -> None:
        name, now = self._names.get(old, old), self._now
        if name not in now.states:
            self._gone(old, "state of step", "step with state", now.states, source=False)
            return
        if old in now.command_line.drop:
            self._still_there(old)
        verb, applied = self._verb(name, old)
        outcome, was = _continued(name, old)
        if verb == RESET:
            self._emptied.add(old)
            self._begun[name] = {WHOLE: self._checkpoint.id}
            states = self._states_of(old, EMPTY)
            self._steps.append(
                StepChange(name, UpgradeOutcome.RESET, was=was, remarks=self._reset_remarks(name), states=states)
            )
            return
        before = self._identity.fingerprints.get(old, {})
        changes = compare_fingerprints(
            {origin: parts for origin, parts in before.items() if origin not in self._missing},
            self._fingerprints.get(name, before),
            now.directives.get(name, _NO_DIRECTIVE).columns,
            now.directives.get(name, _NO_DIRECTIVE).drop,
        )
        self._give_up(name, old)
        states = self._judged(name, old)
        refused = self._refuse_step(name, old, changes, states, (verb, applied))
        if changes.added and not refused:
            self._begun[name] = dict.fromkeys(changes.added, self._checkpoint.id)
        begins = () if refused else changes.added
        remarks = [f"{column} begins at checkpoint {self._checkpoint.id}" for column in begins]
        if applied and not refused:
            remarks.append(f"{render_directive(applied)} was applied to an earlier change, and has no effect now")
        remarks += self._idle_drops(name, old)
        if verb == KEEP:
            other = f"another definition made its state: {', '.join(changes.other)}"
            remarks.append(other if changes.other else "`keep` has no effect: nothing has changed that needs it")
        outcome = UpgradeOutcome.REFUSED if refused else outcome
        self._steps.append(StepChange(name, outcome, was=was, remarks=tuple(remarks), states=states))

    def _reset_remarks(self, name: OperatorName) -> tuple[str, ...]:
        return tuple(one.reset_remark for one in self._now.states[name] if one.reset_remark)

    def _resetting(self, name: OperatorName) -> str:
        """Describes what `reset` does to this step."""
        return "; ".join((_RESET_DOES, *self._reset_remarks(name)))

    def _idle_drops(self, name: OperatorName, old: OperatorName) -> list[str]:
        """Reports columns to drop that the checkpoint does not have: dropped before, or misspelled."""
        shapes = [stored.shape for (operator, _), stored in self._stored.items() if operator == old]
        known = {*state_columns(shapes), *columns_of(self._identity.fingerprints.get(old, {}))}
        return [
            f"`state: {{drop: [{column}]}}` has no effect: the checkpoint has no such column"
            for column in self._now.directives.get(name, _NO_DIRECTIVE).drop
            if shapes and column not in known
        ]

    def _verb(self, name: OperatorName, old: OperatorName) -> tuple[str, str]:
        """Returns the directive that applies to this start, if any, and one already applied, for a message."""
        applied = self._identity.applied_directives.get(old, ()) + self._identity.applied_directives.get(name, ())
        used = ""
        for verb, text in directives_for(name, self._now):
            if text not in applied:
                return verb, ""
            used = text
        return "", used

    def _refuse_step(
        self,
        name: OperatorName,
        old: OperatorName,
        changes: FingerprintChanges,
        states: tuple[StateChange, ...],
        directive: tuple[str, str],
    ) -> bool:
        (verb, applied), before = directive, len(self._refusals)
        unfit = [one for one in states if one.verdict == Fit.INCOMPATIBLE]
        lost = [str(one.name) for one in unfit if one.name not in {held.name for held in self._now.states[name]}]
        if changes.gone and not {*lost} <= {*changes.gone}:
            self._refuse(
                name,
                f"step {str(name)!r} no longer has {_quoted(changes.gone)}, and without that it does not have the "
                f"whole state {_quoted(lost)}, which cannot be removed by itself",
                f"Restore it, or another column that keeps such a state; {self._under_new_name(name)}. "
                f"{advise(name, RESET, applied)}",
                {RESET: self._resetting(name)},
                changes.gone,
            )
        elif changes.gone:
            listed = ", ".join(changes.gone)
            once = " ".join(f"--drop {name}.{column}" for column in changes.gone)
            former = f"or write its new name, `was: {{columns: {{new_name: {changes.gone[0]}}}}}`"
            self._refuse(
                name,
                f"step {str(name)!r} no longer has {_quoted(changes.gone)}, which its state contains",
                f"Restore it; or drop it by name, `state: {{drop: [{listed}]}}` in the file, or for a single start "
                f"{once}" + ("" if lost else f"; {former}"),
                changes=changes.gone,
            )
        elif unfit:
            reasons = "; ".join(f"state {one.name}: {one.reason}" for one in unfit)
            self._refuse(
                name,
                f"the state of step {str(name)!r} cannot be read by the new definition: {reasons}",
                f"{_say_gone(unfit)}{self._say_renamed_keys(name, old)}{advise(name, RESET, applied)}; or restore the "
                f"old definition; {self._under_new_name(name)}",
                {RESET: self._resetting(name)},
            )
        if changes.other and verb != KEEP:
            choices = {RESET: self._resetting(name)} if unfit else {KEEP: _KEEP_DOES, RESET: self._resetting(name)}
            if not unfit or changes.gone:
                self._refuse(
                    name,
                    f"the state of step {str(name)!r} was made by another definition; what has changed: "
                    f"{', '.join(changes.other)}",
                    f"{advise(name, ' or '.join(choices), applied)}; or restore the old definition, including `where` "
                    f"and `select` in front of the step; {self._under_new_name(name)}",
                    choices,
                    changes.other,
                )
        return len(self._refusals) > before

    def _say_renamed_keys(self, name: OperatorName, old: OperatorName) -> str:
        """Suggests the directive for keys that may merely have been renamed; with it their state continues."""
        for declared in self._now.states[name]:
            stored = self._stored.get((old, declared.name))
            keys = () if stored is None else zip(stored.shape.keys, declared.shape.keys, strict=False)
            known = set() if stored is None else {one.name for one in stored.shape.keys}
            renamed = {
                now.name: was.name
                for was, now in keys
                if was.name != declared.evolution.columns.get(now.name)
                and now.name not in known
                and was.type == now.type
            }
            if renamed and stored is not None and len(stored.shape.keys) == len(declared.shape.keys):
                pairs = ", ".join(f"{now}: {was}" for now, was in renamed.items())
                return f"If its key was renamed, write `was: {{columns: {{{pairs}}}}}`, which keeps the state. "
        return ""

    def _judged(self, name: OperatorName, old: OperatorName) -> tuple[StateChange, ...]:
        """Returns the verdicts on those states of the step whose headers are known."""
        declared = {one.name: one for one in self._now.states[name]}
        found = []
        for (operator, state), stored in sorted(self._stored.items()):
            if operator != old:
                continue
            if (old, state) in self._given_up:
                found.append(StateChange(state, GIVEN_UP, "", stored.keys, stored.size_bytes))
                continue
            if state not in declared:
                there = ", ".join(sorted(declared)) or "none"
                verdict = Verdict(Fit.INCOMPATIBLE, f"the step has no such state now (it has: {there})")
            else:
                verdict = judge(stored.shape, declared[state])
            found.append(StateChange(state, verdict.fit, verdict.reason, stored.keys, stored.size_bytes))
        return tuple(found)

    def _give_up(self, name: OperatorName, old: OperatorName) -> None:
        """Gives up states that the file drops by name: those of a `python` step, which a user has named."""
        named = columns_of(self._identity.fingerprints.get(old, {}))
        declared = {one.name for one in self._now.states[name]}
        dropped = named.intersection(self._now.directives.get(name, _NO_DIRECTIVE).drop).difference(declared)
        held = {one.state for one in self._checkpoint.states if one.operator == old and not one.in_flight}
        self._given_up |= {(old, state) for state in held.intersection(dropped)}

    def _code_changes(self) -> Iterator[CodeChange]:
        """Yields the steps whose user code has changed."""
        for name, now in sorted(self._now.code.items()):
            was = self._identity.code.get(self._renamed.get(name, name))
            if was is not None and was != now:
                yield CodeChange(name, self._checkpoint.id, was, now)

    def _file_changes(self) -> Iterator[FileChange]:
        """Yields the files whose content has changed, and those that are only in one of the definitions."""
        old, now = self._identity.files, self._now.files
        for name in sorted({*old, *now}):
            if old.get(name) != now.get(name):
                yield FileChange(name, self._checkpoint.id, old.get(name, ""), now.get(name, ""))

    def _states_of(self, old: OperatorName, verdict: str) -> tuple[StateChange, ...]:
        return tuple(
            StateChange(state, verdict, "", stored.keys, stored.size_bytes)
            for (operator, state), stored in sorted(self._stored.items())
            if operator == old
        )

    # -- what is gone, what is new ---------------------------------------------------------------------------------

    def _gone(self, old: OperatorName, what: str, kind: str, there: Collection[OperatorName], *, source: bool) -> None:
        if old in self._now.command_line.drop:
            self._emptied.add(old)
            states = self._states_of(old, GIVEN_UP)
            remarks = ("the records that wait for their answers are lost",) if self._waiting_in(old) else ()
            self._steps.append(StepChange(old, UpgradeOutcome.DROPPED, source, remarks=remarks, states=states))
            return
        states = self._states_of(old, UNDECIDED)
        self._steps.append(StepChange(old, UpgradeOutcome.REFUSED, source, states=states))
        taken = next((name for name, one in self._now.directives.items() if one.was == old), None)
        if taken is not None:
            self._refuse(old, *_say_taken(old, taken, self._checkpoint.id))
            return
        if old in (READ_BACK, RETRY):
            setting = old.partition(".")[0]
            remedy = f"Restore `{setting}`, or start once with --drop {old}, which drops them"
            self._refuse(old, f"the checkpoint holds {what} {str(old)!r}, which the pipeline no longer has", remedy)
            return
        again = "begins at its `start`" if source else "begins with empty state"
        lost = _LOST if self._waiting_in(old) else self._say_fed(old)
        self._refuse(
            old,
            f"the checkpoint holds {what} {str(old)!r}, which the pipeline no longer has as a {kind} (it has: "
            f"{', '.join(sorted(_in_the_file(there))) or 'none'})",
            f"If it was renamed write `was: {old}` at its new name; if it was removed on purpose start once with "
            f"--drop {old}, which gives up its {what.split(maxsplit=1)[0]}: should it be added again, it {again}"
            f"{lost}",
        )

    def _say_fed(self, old: OperatorName) -> str:
        """Names the steps that will also need a directive when this one is dropped, so that one start is enough."""
        fed = [
            str(self._names.get(step, step))
            for step in self._held
            if old in self._identity.fingerprints.get(step, {}) and self._names.get(step, step) in self._now.states
        ]
        silent = [name for name in fed if not self._verb(OperatorName(name), self._names_before(name))[0]]
        if not silent:
            return ""
        options = " ".join(f"--keep {name}" for name in silent)
        which = "which gets" if len(silent) == 1 else "each of which gets"
        return (
            f". Then also write --keep or --reset for {_quoted(silent)}, {which} no records of it afterwards: {options}"
        )

    def _names_before(self, name: str) -> OperatorName:
        return self._renamed.get(OperatorName(name), OperatorName(name))

    def _waiting_in(self, old: OperatorName) -> bool:
        """Tells whether its state consists of records in flight that no source position covers any more."""
        return any(one.operator == old and one.state == IN_FLIGHT.name for one in self._checkpoint.states)

    def _still_there(self, old: OperatorName) -> None:
        name = self._names.get(old, old)
        reset = f", or use --reset {name} to start it with empty state" if name in self._now.states else ""
        message = f"--drop {old} would drop what the file still has as {str(name)!r}"
        self._refuse(name, message, f"Remove it from the file{reset}")

    def _new_ones(self) -> None:
        known = {step.name for step in self._steps}
        for name in sorted(_in_the_file({*self._now.sources, *self._lasting()}) - known):
            refused = name in self._now.states and self._lacks_history(name)
            outcome = UpgradeOutcome.REFUSED if refused else UpgradeOutcome.NEW
            self._steps.append(StepChange(name, outcome, name in self._now.sources))

    def _lasting(self) -> set[OperatorName]:
        """Returns the steps that have more than records in flight, which a checkpoint has only while some wait."""
        return {name for name, held in self._now.states.items() if {one.name for one in held} != {IN_FLIGHT.name}}

    def _lacks_history(self, name: OperatorName) -> bool:
        """Refuses a new step that needs all rows of a table but would have only those that are yet to come."""
        if name in self._identity.fingerprints or self._verb(name, name)[0] == RESET or not self._needs_history(name):
            return False
        origins = {self._renamed.get(OperatorName(one), one) for one in self._now.fingerprints.get(name, {})}
        given_up = {*self._now.command_line.drop, *self._emptied}
        continued = sorted(origins.intersection((*self._sources, *self._held)) - given_up)
        if not continued:
            return False
        through = "" if origins.isdisjoint(self._held) else ", through steps of other names"
        self._refuse(
            name,
            f"step {str(name)!r} is new and needs all rows of a table, but {_quoted(continued)} continues where it "
            "was: what has passed it before would be missing",
            f"Let it read a source of another name{through}, which begins at its `start`. {advise(name, RESET, '')}, "
            "with which it begins empty",
            {RESET: _RESET_OF_NEW_DOES},
        )
        return True

    def _needs_history(self, name: OperatorName) -> bool:
        return any(one.needs_history for one in self._now.states[name])

    def _under_new_name(self, name: OperatorName) -> str:
        """Suggests another step, which begins empty."""
        return "or add the changed step under a new name" + (
            ", with a source of another name" if self._needs_history(name) else " next to it"
        )

    def _rows_in_flight(self) -> None:
        """Refuses if an edge with rows in the checkpoint no longer exists under its current name."""
        there = self._edges.values()
        for edge in sorted({edge for one in self._checkpoint.states for edge in one.edges}.difference(there)):
            self._refuse(
                OperatorName(edge.rpartition(" -> ")[2]),
                f"the checkpoint holds rows in flight on {edge}, a connection by key that the pipeline no longer has "
                f"(it has: {', '.join(sorted(self._now.edges)) or 'none'})",
                _FINAL,
            )

    def _check_command_line(self) -> None:
        known = {*self._sources, *self._held}
        held = f"checkpoint {self._checkpoint.id} holds nothing of it (it has: {', '.join(sorted(known)) or 'nothing'})"
        self._refusals.extend(_check_names(self._now, known, {*self._identity.applied_directives}, held))

    def _carry_begun(self) -> dict[OperatorName, dict[str, CheckpointId]]:
        found: dict[OperatorName, dict[str, CheckpointId]] = {}
        for old, columns in self._identity.begun.items():
            name = self._names.get(old, old)
            if name in self._now.states and old not in self._emptied:
                directive = self._now.directives.get(name, _NO_DIRECTIVE)
                renamed = {was: now for now, was in directive.columns.items()}
                left = {
                    renamed.get(column, column): at for column, at in columns.items() if column not in directive.drop
                }
                if left:
                    found[name] = left
        for name, added in self._begun.items():
            found[name] = {**found.get(name, {}), **added}
        return found

    def _of_now(self, names: Collection[OperatorName]) -> set[OperatorName]:
        return {name for name in names if name in self._now.sources or name in self._now.states}

    def _refuse(
        self,
        name: OperatorName,
        message: str,
        remedy: str,
        choices: Mapping[str, str] | None = None,
        changes: tuple[str, ...] = (),
    ) -> None:
        self._refusals.append(UpgradeRefusal(name, message, remedy, dict(choices or {}), changes))


def _continued(name: OperatorName, old: OperatorName) -> tuple[UpgradeOutcome, OperatorName]:
    """Returns the outcome for a step that continues, and its former name if it was renamed."""
    return (UpgradeOutcome.KEPT, OperatorName("")) if name == old else (UpgradeOutcome.RENAMED, old)


def _in_the_file(names: Collection[OperatorName]) -> set[OperatorName]:
    """Removes generated names such as `dead_letters.bytes`, which users neither write nor rename."""
    return {name for name in names if "." not in name}


def _derive_renamed(
    checkpoint: CompletedCheckpoint, identity: Identity, now: Definition
) -> dict[OperatorName, OperatorName]:
    """Returns the `was` that still apply: the checkpoint has the former name but not the current one."""
    known: set[str] = {one.source for one in checkpoint.positions}
    known |= {one.operator for one in checkpoint.states if not one.in_flight}
    known |= {*identity.fingerprints, *(origin for meaning in identity.fingerprints.values() for origin in meaning)}
    for edge in {edge for one in checkpoint.states for edge in one.edges}:
        known |= {end.partition(".")[0] for end in edge.split(" -> ")}
    return {name: one.was for name, one in now.directives.items() if one.was and one.was in known and name not in known}


def _say_taken(old: OperatorName, name: OperatorName, checkpoint: CheckpointId) -> tuple[str, str]:
    """Returns message and remedy for a `was` whose new name exists in the checkpoint for something else."""
    return (
        f"`was: {old}` at {str(name)!r} cannot be followed: checkpoint {checkpoint} holds a {str(name)!r} of its own",
        (
            f"Two starts do it: remove {str(name)!r} from the file, leave {str(old)!r} under its name, and start once "
            f"with --drop {name}; after a checkpoint rename it. Without `was`, and with --drop {old}, {str(name)!r} "
            "continues with its own former state"
        ),
    )


def _under_former_names(
    now: Definition, renamed: Mapping[OperatorName, OperatorName]
) -> tuple[Mapping[OperatorName, StateFingerprint], dict[str, str]]:
    """Returns the fingerprints without renames, by current name, and the former name of each edge."""
    if now.plan is None or not renamed:
        return now.fingerprints, {edge: edge for edge in now.edges}
    former = derive_former_plan(now.plan, renamed)
    fingerprints = derive_fingerprints(former)
    before, after = derive_edge_names(former), derive_edge_names(now.plan)
    by_key = [edge.index for edge in now.plan.edges if edge.keys]
    return (
        {name: fingerprints[renamed.get(name, name)] for name in now.fingerprints},
        {after[index]: before[index] for index in by_key},
    )


def _say_gone(unfit: Collection[StateChange]) -> str:
    """Suggests the directives for columns that a step no longer has. There are none for parts of columns."""
    reasons = [reason for one in unfit for reason in one.reason.split("; ")]
    gone = [reason.removesuffix(GONE) for reason in reasons if reason.endswith(GONE)]
    if not gone or any("." in one for one in gone):
        return ""
    return (
        f"If {_quoted(gone)} was renamed, write `was: {{columns: {{new_name: {gone[0]}}}}}`; to drop it, "
        f"write `state: {{drop: [{', '.join(gone)}]}}`. "
    )


def _quoted(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
