"""What releases of state format 2 have written is restored for as long as it has users: these files never change.

They are one checkpoint of an operator with four states in two subtasks: keyed totals with a full file and an increment
that has tombstones, a map whose values are nested and can expire, and lists of both forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.coordinator.stored_state import read_parts
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.datatypes import BIGINT, DATE, STRING, DataType
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.operators.runtime import OperatorState
from tidegate.plan.assignment import key_group_range
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.collections import declare_keyed_map
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, StateShape, declare_list
from tidegate.state.operator_list import OperatorList
from tidegate.state.snapshot import read_header
from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage
from tidegate.task.restore import restore_states

FILES = Path(__file__).with_name("format-2")
OPERATOR = OperatorName("count")
GROUPS = 128

PLACE = DataType("struct", fields=(("city", STRING), ("days", DataType("array", element=DATE))))
KEYS = (StateField("k", STRING), StateField("n", BIGINT))
TOTALS = StateDeclaration(
    StateName("totals"), StateShape(KEYS, (StateField("sum", BIGINT, nullable=False),), "sum of bytes", GROUPS)
)
PLACES = declare_keyed_map(
    StateDeclaration(
        StateName("places"), StateShape(KEYS[:1], (StateField("place", PLACE),), "sum of bytes", GROUPS, expires=True)
    ),
    StateField("day", DATE),
)
READERS = declare_list("readers", (StateField("name", STRING),))
KNOWN = declare_list("known", (StateField("name", STRING),), StateForm.UNION)

EXPECTED_TOTALS = {("ann", 1): (10,), ("ann", None): (-(2**63),), (None, 3): (2**63 - 1,), ("zoe", 4): (5,)}
"""`bob`, who was in the full files, is deleted in the increment of the one subtask; ann's 1 is changed in it."""
EXPECTED_PLACES = {("ann", 19_000): (("rome", (1, None, 3)), 1_700_000_000_000), ("zoe", 19_001): (None, None)}
EXPECTED_READERS = [("a",), ("b",), ("c",)]
EXPECTED_KNOWN = [("x",), ("y",)]


def groups_of(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [sum((row[0] or "").encode()) % GROUPS for row in rows]


def open_states(backend: str) -> dict[StateName, Any]:
    open_state = choose_backend(backend, retained=1)
    keyed = [open_state(OPERATOR, one, groups_of) for one in (TOTALS, PLACES)]
    lists = [OperatorList[StateHandle](OPERATOR, one) for one in (READERS, KNOWN)]
    held: tuple[OperatorState, ...] = (*keyed, *lists)
    return {state.declaration.name: state for state in held}


def restore(parallelism: int, backend: str) -> list[dict[StateName, Any]]:
    """The states of each subtask."""
    storage = LocalStorage(str(FILES))
    checkpoint = msgspec.json.decode((FILES / "checkpoint.json").read_bytes(), type=CompletedCheckpoint)
    found = []
    for slot in map(SlotIndex, range(parallelism)):
        states: dict[StateName, Any] = open_states(backend)
        share = Share(key_group_range(slot, parallelism, GROUPS), slot, parallelism)
        held: Mapping[StateName, OperatorState] = states
        restore_states(
            OPERATOR, held, checkpoint.states, partial(read_parts, storage, key_groups=share.key_groups), share
        )
        found.append(states)
    return found


def content(states: Sequence[dict[StateName, Any]], name: StateName) -> dict[Any, Any]:
    return {key: value for one in states for group in range(GROUPS) for key, value in one[name].scan(group)}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_checkpoint_is_restored(parallelism: int, backend: str) -> None:
    states = restore(parallelism, backend)
    assert content(states, TOTALS.name) == EXPECTED_TOTALS
    assert content(states, PLACES.name) == EXPECTED_PLACES
    assert [value for one in states for value in one[READERS.name].values] == EXPECTED_READERS
    assert [list(one[KNOWN.name].values) for one in states] == [EXPECTED_KNOWN] * parallelism
    for one in states:
        for state in one.values():
            state.close()


def test_the_files_are_what_they_are_said_to_be() -> None:
    checkpoint = msgspec.json.decode((FILES / "checkpoint.json").read_bytes(), type=CompletedCheckpoint)
    assert [(one.state, one.subtask, one.kind, one.increment) for one in checkpoint.states] == [
        (name, subtask, kind, increment)
        for subtask in range(2)
        for name, kind, increment in (
            ("totals", StateKind.OPERATOR, False),
            *((("totals", StateKind.OPERATOR, True),) if subtask == 0 else ()),
            ("places", StateKind.OPERATOR, False),
            ("readers", StateKind.LIST, False),
            ("known", StateKind.LIST, False),
        )
    ]
    shapes = {one.name: one.shape for one in (TOTALS, PLACES, READERS, KNOWN)}
    for handle in checkpoint.states:
        data = unseal(handle.path, (FILES / handle.path).read_bytes())
        assert data[:6] == b"TGKS\x00\x02"
        assert read_header(data)[0].shape == shapes[handle.state]
