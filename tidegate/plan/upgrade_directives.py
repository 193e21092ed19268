"""Checks the upgrade directives of a file against the steps that they apply to.

A directive without effect is a mistake: `state` of a step without state, or a column that the state does not have. The
others go into the plan as `UpgradeDirective`, and from there to the upgrade decision (`coordinator/upgrade.py`) and
into the declarations with which the slots open states (`evolving.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidegate.config.errors import Problem
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import StepSettings
from tidegate.datatypes import DataType
from tidegate.ids import OperatorName
from tidegate.operators.calls.spec import IN_FLIGHT
from tidegate.plan.evolving import find_unfit, state_columns
from tidegate.plan.graph import Plan, UpgradeDirective
from tidegate.plan.logical import LogicalGraph


def derive_directives(loaded: LoadedPipeline) -> dict[OperatorName, UpgradeDirective]:
    """Returns the directives of the file by current name."""
    found: dict[OperatorName, UpgradeDirective] = {}
    for name, source in loaded.settings.sources.items():
        if source.was is not None:
            found[OperatorName(name)] = UpgradeDirective(was=OperatorName(source.was))
    for step in loaded.settings.steps:
        if step.was is None and step.state is None:
            continue
        directive = UpgradeDirective()
        if step.was is not None:
            directive = UpgradeDirective(was=OperatorName(step.was.step), columns=step.was.columns)
        if (state := step.state) is not None:
            directive = msgspec.structs.replace(
                directive, verb=state.verb, note=state.note, drop=state.drop, defaults=state.defaults
            )
        found[OperatorName(step.name)] = directive
    return found


def give_up_columns(plan: Plan, columns: Iterable[tuple[OperatorName, str]]) -> Plan:
    """Returns the plan as if the file also dropped these columns of its steps' states, and topics of its sources."""
    directives = dict(plan.directives)
    for name, column in columns:
        own = directives.get(name, UpgradeDirective())
        directives[name] = msgspec.structs.replace(own, drop=tuple(dict.fromkeys((*own.drop, column))))
    return msgspec.structs.replace(plan, directives=directives)


def find_directive_problems(loaded: LoadedPipeline, graph: LogicalGraph) -> Iterator[Problem]:
    """Yields problems of directives that have no effect or that the step contradicts."""
    for index, step in zip(loaded.step_indices, loaded.settings.steps, strict=True):
        node = graph.get(OperatorName(step.name))
        if node is None or (step.was is None and step.state is None):
            continue
        states = node.operator.states(loaded.settings.max_parallelism)
        if all(one.name == IN_FLIGHT.name for one in states):  # no directive applies to records in flight
            yield from _find_useless(loaded, index, step)
        else:
            yield from _find_column_problems(loaded, index, step, state_columns(one.shape for one in states))


def _find_useless(loaded: LoadedPipeline, index: int, step: StepSettings) -> Iterator[Problem]:
    if step.state is not None:
        message = "this step has no state that could be kept or reset"
        remedy = "remove it; if the state of a later step changes its meaning, write it there"
        yield loaded.problem(("steps", index, "state"), message, remedy, at_key=True)
    if step.was is not None and step.was.columns:
        message = "this step has no state in which a column could have had another name"
        yield loaded.problem(("steps", index, "was", "columns"), message, "write `was: former_name`", at_key=True)


def _find_column_problems(
    loaded: LoadedPipeline, index: int, step: StepSettings, columns: Mapping[str, DataType | None]
) -> Iterator[Problem]:
    for new, old in (step.was.columns if step.was is not None else {}).items():
        path = ("steps", index, "was", "columns", new)
        if new not in columns:
            remedy = derive_suggestion(new, columns)
            yield loaded.problem(path, f"the state of this step has no column `{new}`", remedy, at_key=True)
        elif old in columns:
            message = f"the step still has `{old}`: one column cannot continue as two"
            yield loaded.problem(path, message, "remove it here: the new column begins at the change")
    if step.state is None:
        return
    for column in step.state.drop:
        if column in columns:
            message = f"the step still has `{column}`"
            yield loaded.problem(("steps", index, "state", "drop"), message, "remove it here, or from the step")
    for column, value in step.state.defaults.items():
        path = ("steps", index, "state", "defaults", column)
        if column not in columns:
            remedy = derive_suggestion(column, columns)
            yield loaded.problem(path, f"the state of this step has no column `{column}`", remedy, at_key=True)
            continue
        kind = columns[column]
        if kind is None:
            message, remedy = "an aggregate begins empty at the change", "remove it"
            yield loaded.problem(path, message, remedy, at_key=True)
        elif (wrong := find_unfit(kind, value)) is not None:
            yield loaded.problem(path, *wrong)
