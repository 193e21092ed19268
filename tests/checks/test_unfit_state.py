"""What the headers of a checkpoint's files say against the pipeline as it is now."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, completed
from tests.task.topologies import edge, plan_of, source_node, totals_node, vertex
from tidegate.checks.unfit_state import refuse_unfit_state
from tidegate.coordinator.recovery import RestoreFacts, RestoreRefused
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.journal.state_files import derive_head
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.plan.graph import Plan
from tidegate.state.declaration import StateDeclaration, StateShape
from tidegate.state.snapshot import encode_snapshot
from tidegate.storage.checksum import seal


def one_total() -> Plan:
    return plan_of(
        1, [vertex(source_node("read", edges=(0,))), vertex(totals_node("total"))], [edge(0, "read", "total", "k")]
    )


def declared(plan: Plan) -> StateDeclaration:
    (operator,) = plan.operators(AggregateOperator)
    (totals,) = operator.states(plan.max_parallelism)
    return totals


def written(storage: FakeStorage, *declarations: StateDeclaration) -> CompletedCheckpoint:
    """A checkpoint that lists a file of each of these states."""
    handles = []
    for number, one in enumerate(declarations):
        data = seal(encode_snapshot("total", one, {}))
        path = f"state/000000000007-{number}.state"
        storage.put(path, data)
        digest = hashlib.sha256(data).hexdigest()
        head = derive_head(data)
        handles.append(StateHandle(OperatorName("total"), SlotIndex(0), path, len(data), digest, *head, state=one.name))
    return completed(7, states=handles)


def check(storage: FakeStorage, plan: Plan, checkpoint: CompletedCheckpoint) -> None:
    stateful = frozenset({OperatorName("total")})
    facts = RestoreFacts(IDENTITY, {}, stateful, frozenset(), plan)
    refuse_unfit_state(storage, checkpoint, IDENTITY, facts)


def reshaped(declaration: StateDeclaration, **fields: object) -> StateDeclaration:
    shape: StateShape = msgspec.structs.replace(declaration.shape, **fields)
    return StateDeclaration(declaration.name, shape)


def test_state_that_the_pipeline_can_read_is_let_through() -> None:
    plan, storage = one_total(), FakeStorage()
    check(storage, plan, written(storage, declared(plan)))


def test_state_of_another_shape_is_refused_by_its_name() -> None:
    plan, storage = one_total(), FakeStorage()
    other = reshaped(declared(plan), key_hash="hash v0")
    with pytest.raises(
        RestoreRefused,
        match=r"^the state of step 'total' cannot .*: state totals: keys were hashed by 'hash v0'.*--reset",
    ):
        check(storage, plan, written(storage, other))


def test_each_state_of_a_step_is_looked_at() -> None:
    """The larger file is the one that nobody can read."""
    plan, storage = one_total(), FakeStorage()
    gone = StateDeclaration(StateName("timers_of_an_older_release"), declared(plan).shape)
    with pytest.raises(
        RestoreRefused,
        match=r"state timers_of_an_older_release: the step has no such state now \(it has: totals\)",
    ):
        check(storage, plan, written(storage, declared(plan), gone))
