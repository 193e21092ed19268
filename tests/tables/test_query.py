"""Conditions, keys and rows of a state; which files are read for a key."""

from __future__ import annotations

import pytest

from tests.tables.snapshots import CountingStorage, Written, make_snapshot
from tidegate.datatypes import BIGINT, STRING, decimal_of
from tidegate.ids import SlotIndex, StateName
from tidegate.plan.assignment import key_group_range
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH, key_groups_of_keys
from tidegate.state.snapshot import Entry, encode_snapshot
from tidegate.tables.files import choose_state, read_shape
from tidegate.tables.query import Query, QueryRefused
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import StateTable

GROUPS, PARALLELISM = 16, 4
KEYS = (StateField("name", STRING), StateField("n", BIGINT))
DECLARATION = StateDeclaration(
    StateName("totals"), StateShape(KEYS, (StateField("c.count", BIGINT, nullable=False),), KEY_HASH, GROUPS)
)


def snapshot() -> StateSnapshot:
    """Keys (a, 0) to (a, 99), each with its number times ten; a file per subtask and one increment each."""
    keys = [("a", number) for number in range(100)]
    groups = key_groups_of_keys(keys, [STRING, BIGINT], GROUPS)
    files = []
    for slot in range(PARALLELISM):
        own = key_group_range(SlotIndex(slot), PARALLELISM, GROUPS)
        held: dict[int, list[Entry]] = {}
        for key, group in zip(keys, groups, strict=True):
            if group in own:
                held.setdefault(group, []).append((key, (key[1] * 10,)))
        files.append(Written(encode_snapshot("step", DECLARATION, held), slot))
        files.append(Written(encode_snapshot("step", DECLARATION, {}), slot, increment=True))
    return make_snapshot(files, GROUPS, PARALLELISM)


def ask(of: StateSnapshot, where: str | None = None, **keys: str) -> list[tuple[object, ...]]:
    state = choose_state(of, "step", None)
    shape = read_shape(of, state)
    query = Query(shape, StateTable(shape), keys, where)
    return [row for frame in query.read(of, state) for row in frame.select("name", "n", "c").rows()]


def test_a_condition_is_spark_sql_over_the_columns_of_the_table() -> None:
    assert sorted(ask(snapshot(), "c >= 980 or n = 3")) == [("a", 3, 30), ("a", 98, 980), ("a", 99, 990)]
    assert ask(snapshot(), "name like 'b%'") == []
    assert len(ask(snapshot(), "`__tidegate_key_group` < 16")) == 100


def test_a_key_of_a_subtask_without_a_file_is_not_there() -> None:
    """`state write` makes files of subtasks with rows only."""
    (group,) = key_groups_of_keys([("a", 7)], [STRING, BIGINT], GROUPS)
    owner = next(s for s in range(PARALLELISM) if group in key_group_range(SlotIndex(s), PARALLELISM, GROUPS))
    of = make_snapshot(
        [Written(encode_snapshot("step", DECLARATION, {}), (owner + 1) % PARALLELISM)], GROUPS, PARALLELISM
    )
    assert ask(of, name="a", n="7") == []


def test_a_whole_key_reads_the_files_of_one_subtask_only() -> None:
    of = snapshot()
    assert ask(of, name="a", n="7") == [("a", 7, 70)]
    assert isinstance(of.storage, CountingStorage)
    (group,) = key_groups_of_keys([("a", 7)], [STRING, BIGINT], GROUPS)
    owner = next(s for s in range(PARALLELISM) if group in key_group_range(SlotIndex(s), PARALLELISM, GROUPS))
    shape_read = of.checkpoint.states[-1].path
    assert {name for name in of.storage.reads if name != shape_read} == {
        handle.path for handle in of.checkpoint.states if handle.subtask == owner and handle.path != shape_read
    }
    for handle in of.checkpoint.states:  # heads, and one of the four key groups of the subtask
        assert of.storage.reads[handle.path] <= 3 * handle.head_bytes + (handle.size_bytes - handle.head_bytes) // 2


def test_a_part_of_a_key_is_looked_for_everywhere() -> None:
    assert ask(snapshot(), n="7") == [("a", 7, 70)]
    assert len(ask(snapshot(), name="a")) == 100


def test_values_are_read_as_the_column_is() -> None:
    shape = StateShape((StateField("p", decimal_of(5, 2)),), (), KEY_HASH, GROUPS)
    query = Query(shape, StateTable(shape), {"p": "1.5"}, None)
    (group,) = key_groups_of_keys([(query._keys["p"][0],)], [decimal_of(5, 2)], GROUPS)
    assert query.key_groups == range(group, group + 1)


def test_a_key_column_may_have_the_name_of_one_that_the_operator_puts_before_it() -> None:
    shape = StateShape((StateField("time", BIGINT), StateField("time", STRING)), (), KEY_HASH, GROUPS, prefix=1)
    table = StateTable(shape)
    assert [column.name for column in table.columns] == ["time", "time_2", "__tidegate_key_group"]
    assert Query(shape, table, {"time": "7"}, None).key_groups is None
    (group,) = key_groups_of_keys([("7",)], [STRING], GROUPS)
    assert Query(shape, table, {"time_2": "7"}, None).key_groups == range(group, group + 1)


@pytest.mark.parametrize(
    ("where", "keys", "words"),
    [
        ("c", {}, "is bigint, not a condition"),
        ("d > 1", {}, "`d`"),
        ("c >", {}, "--where 'c >'"),
        ("10 / (n - 3) > 1", {}, "cannot be evaluated for a row: division by zero"),
        (None, {"x": "1"}, "no key column `x`; it has name, n"),
        (None, {"n": "seven"}, "'seven' is not a bigint"),
        (None, {"c": "1"}, "no key column `c`"),
    ],
)
def test_what_cannot_be_asked_is_refused(where: str | None, keys: dict[str, str], words: str) -> None:
    with pytest.raises(QueryRefused) as caught:
        ask(snapshot(), where, **keys)
    assert words in caught.value.message
    assert caught.value.exit_code == 2
