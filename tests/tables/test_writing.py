"""A savepoint made of rows: what is in it, that steps restore it, and what is refused by name."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.coordinator.types import StateHandle
from tidegate.coordinator.upgrade import UpgradeOutcome
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.datatypes import BIGINT, DOUBLE, STRING
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.journal.savepoint import METADATA, check_whole, examine_savepoint, read_savepoint
from tidegate.journal.state_files import read_state, read_stored
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.plan.assignment import key_group_range
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH
from tidegate.storage.base import StorageError
from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage
from tidegate.tables.files import GroupEntries, choose_state, read_files
from tidegate.tables.rows import RowsRefused, StateRows, read_input
from tidegate.tables.source import open_snapshot
from tidegate.tables.table import StateTable, read_frames
from tidegate.tables.writing import (
    StepRows,
    check_rows,
    choose_declaration,
    derive_identity,
    write_rows_savepoint,
)

TEXT = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: /tmp/none}
parallelism: 3
sources:
  orders: {topic: orders, schema: {k: string, n: bigint, price: "decimal(10,2)", at: timestamp}}
steps:
  - {name: sums, from: orders, key: [k], ttl: 30d, aggregate: {c: count(*), s: sum(price), a: avg(n), f: first(at)}}
  - {name: lasts, from: orders, key: [n, k], keep: last}
  - {name: best, from: orders, key: k, keep: {n: 2, by: n, order: desc}}
  - {name: hours, from: orders, key: k, window: {tumbling: 1h}, aggregate: {c: count(*)}}
  - {name: firsts, from: orders, dedup: {key: [k], within: 1h}}
sinks:
  a: {from: sums, topic: a}
  b: {from: lasts, topic: b}
  c: {from: best, topic: c}
  d: {from: hours, topic: d}
  e: {from: firsts, topic: e}
"""
AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def plan() -> Plan:
    loaded = parse_pipeline(TEXT, "p.yaml", {})
    assert loaded.problems == ()
    return build_plan(loaded)


def sums(count: int = 1, **columns: Any) -> pl.DataFrame:
    given = {
        "k": [f"k{number}" for number in range(count)],
        "c": [*range(count)],
        "s": pl.Series([Decimal(number) for number in range(count)], dtype=pl.Decimal(20, 2)),
        "a.sum": [0.5] * count,
        "a.count": [1] * count,
        "f": [AT] * count,
    }
    return pl.DataFrame({**given, **columns})


def write(plan: Plan, target: Any, *parts: StepRows) -> None:
    states = check_rows(plan, parts)
    identity = derive_identity(plan)
    write_rows_savepoint(plan, states, (), target, identity=identity, token="t" * 16, now_ms=5)


def ranked(*numbers: int | None) -> pl.DataFrame:
    """Rows of a ranking in this order; None is no row."""
    row = pl.Struct({"k": pl.String, "n": pl.Int64, "price": pl.Decimal(10, 2), "at": pl.Datetime("us", "UTC")})
    rows = [None if n is None else {"k": "a", "n": n, "price": Decimal(1), "at": AT} for n in numbers]
    return pl.DataFrame({"k": ["a"], "rows": pl.Series([rows], dtype=pl.List(row))})


def table(path: Path, step: str, *, raw: bool = True) -> pl.DataFrame:
    snapshot = open_snapshot(str(path), None, {})
    files = read_files(snapshot, choose_state(snapshot, step, None))
    rows = StateTable(files.shape, raw=raw)
    return pl.concat([rows.empty(), *read_frames(snapshot, files, rows)])


class Broken(LocalStorage):
    """Its disk is full, and then it is gone."""

    def put(self, name: str, data: bytes) -> None:
        if name == METADATA:
            raise StorageError("no space left")
        super().put(name, data)

    def delete(self, name: str) -> None:
        raise StorageError(f"cannot delete {name}")


def test_what_is_reported_is_why_it_failed_and_not_that_it_could_not_be_removed(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no space left"):
        write(plan, Broken(str(tmp_path / "made")), StepRows("sums", sums(2)))


def test_a_sum_of_doubles_is_made_of_its_result_alone() -> None:
    call = AggregateCall("sum", ColumnReference("x", DOUBLE), DOUBLE)
    output = (("k", STRING), ("net", DOUBLE))
    spec = AggregateOperator(OperatorName("t"), ("k",), (("net", call),), "each", output, BadRecordPolicy.FAIL)
    (declaration,) = spec.states(8)
    rows = StateRows(declaration, "step 't'")
    [(_, entries)] = rows.entries(rows.read(pl.DataFrame({"k": ["a"], "net": [0.5]})))
    assert entries == [(("a",), (0.5, 0.0, None))]


def test_a_word_that_the_file_still_has_does_not_throw_the_rows_away(tmp_path: Path) -> None:
    said = TEXT.replace("from: orders, key: [k], ttl", 'from: orders, state: {reset: "another key"}, key: [k], ttl')
    directed = build_plan(parse_pipeline(said, "p.yaml", {}))
    folder = LocalStorage(str(tmp_path / "made"))
    write(directed, folder, StepRows("sums", sums(2)))
    savepoint = read_savepoint(folder)
    facts = RestoreFacts(savepoint.identity, {}, frozenset(directed.directives), plan=directed)
    stored = read_stored(folder, savepoint.checkpoint.states)
    upgrade = decide_upgrade(savepoint.checkpoint, savepoint.identity, facts.definition, stored)
    assert [(step.name, step.outcome) for step in upgrade.steps] == [("sums", UpgradeOutcome.KEPT)]


def test_what_was_written_is_read_again_and_restored_by_every_subtask(plan: Plan, tmp_path: Path) -> None:
    best = pl.DataFrame({"k": ["a"], "rows": [[{"at": AT, "k": "a", "n": 2, "price": Decimal("1.50")}]]})
    wanted = choose_declaration(plan, "best").shape.values[0].type
    assert wanted.element is not None
    best = best.with_columns(
        pl.col("rows").list.eval(pl.struct([pl.element().struct.field(name) for name, _ in wanted.element.fields]))
    )
    lasts = pl.DataFrame({"k": ["a", None], "n": [1, 2], "time_ms": [10, 20]})
    path = tmp_path / "made"
    write(plan, LocalStorage(str(path)), StepRows("sums", sums(500)), StepRows("lasts", lasts), StepRows("best", best))
    assert table(path, "sums", raw=False).sort("c").select("k", "c", "a").rows()[:2] == [("k0", 0, 0.5), ("k1", 1, 0.5)]
    assert table(path, "sums")["__tidegate_expires"].null_count() == 500
    assert sorted(table(path, "lasts").drop("__tidegate_key_group").rows()) == [(1, "a", 10), (2, None, 20)]
    assert table(path, "best")["rows"].to_list() == best["rows"].to_list()

    folder = LocalStorage(str(path), create=False)
    savepoint = read_savepoint(folder)
    check_whole(savepoint, folder)
    examined = examine_savepoint(folder)
    assert (examined.problems, examined.keys) == ((), 503)
    assert savepoint.from_rows
    assert savepoint.identity.fingerprints == derive_fingerprints(plan)
    declaration = choose_declaration(plan, "sums")
    for slot in map(SlotIndex, range(2)):
        own = key_group_range(slot, 2, plan.max_parallelism)
        state: Any = choose_backend("memory", retained=1)("sums", declaration, lambda rows: [0] * len(rows))
        files: list[StateHandle] = [one for one in savepoint.checkpoint.states if one.operator == OperatorName("sums")]
        state.restore([unseal(one.path, read_state(folder, one)) for one in files], Share(own, slot, 2))
        mine = table(path, "sums").filter(pl.col("__tidegate_key_group").is_between(own.start, own.stop - 1))
        assert len(state) == mine.height > 100
        for row in mine.head(3).iter_rows(named=True):
            value = state.get(row["k"])
            assert (value[0], value[-1]) == (row["c.count"], None)


def test_rows_of_a_ranking_are_ranked_and_those_without_a_rank_left_out(plan: Plan, tmp_path: Path) -> None:
    write(plan, LocalStorage(str(tmp_path / "made")), StepRows("best", ranked(1, 5, 3)))
    assert [row["n"] for row in table(tmp_path / "made", "best")["rows"][0]] == [5, 3]


def test_raw_rows_of_a_state_make_the_same_state(plan: Plan, tmp_path: Path) -> None:
    write(plan, LocalStorage(str(tmp_path / "one")), StepRows("sums", sums(50, __tidegate_expires=[AT] * 50)))
    file = tmp_path / "rows.parquet"
    table(tmp_path / "one", "sums").write_parquet(file)
    rows = read_input(StateRows(choose_declaration(plan, "sums"), "sums"), str(file))
    write(plan, LocalStorage(str(tmp_path / "two")), StepRows("sums", rows))
    assert table(tmp_path / "one", "sums").equals(table(tmp_path / "two", "sums"))
    assert [path.read_bytes() for path in sorted((tmp_path / "one" / "state").iterdir())] == [
        path.read_bytes() for path in sorted((tmp_path / "two" / "state").iterdir())
    ]


def test_a_folder_is_read_as_spark_writes_it_and_a_path_may_have_brackets(plan: Plan, tmp_path: Path) -> None:
    """Next to the files are their checksums, `_SUCCESS`, and what an attempt that failed has left."""
    rows = StateRows(choose_declaration(plan, "sums"), "sums")
    folder = tmp_path / "rows [1]"
    for number, part in enumerate(
        ("day=1/part-0.snappy.parquet", "day=2/part-1.parquet", "_temporary/0/part-0.parquet")
    ):
        file = folder / part
        file.parent.mkdir(parents=True)
        pl.DataFrame({"k": [number]}).write_parquet(file)
        (file.parent / f".{file.name}.crc").write_bytes(b"crc")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "_SUCCESS").touch()
    with pytest.raises(RowsRefused, match="has no files with rows"):
        read_input(rows, str(tmp_path / "empty"))
    (folder / "_SUCCESS").touch()
    assert read_input(rows, str(folder))["k"].to_list() == [0, 1]
    (tmp_path / "parts" / "k=1").mkdir(parents=True)
    pl.DataFrame({"c": [1]}).write_parquet(tmp_path / "parts" / "k=1" / "part-0.parquet")
    with pytest.raises(RowsRefused, match="`k` is in names of folders, which are not read: write it into the files"):
        read_input(rows, str(tmp_path / "parts"))
    pl.DataFrame({"k": [7]}).write_parquet(tmp_path / "one [1].parquet")
    assert read_input(rows, str(tmp_path / "one [1].parquet"))["k"].to_list() == [7]
    assert read_input(rows, str(tmp_path / "one*.parquet"))["k"].to_list() == [7]


def test_lines_of_json_have_values_as_sources_read_them(plan: Plan, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"k": "a", "c": 1, "s": "1.50", "a.sum": 2, "a.count": 1, "f": "2026-01-02T00:00:00Z"}\n\n')
    rows = StateRows(choose_declaration(plan, "sums"), "sums")
    frame = read_input(rows, str(file))
    assert frame["s"].to_list() == [Decimal("1.50")]
    for line, words in (
        ("[1]", "line 2: Expected `object`"),
        ('{"k": "b", "c": 1.5}', "line 2: "),
        ('\n\n{"k": "b"', "line 4: "),
        ('\n\n{"k": "b", "c": 1.5}', "line 4: "),
        ('{"k": "b", "x": 1}', "no column `x`"),
    ):
        with pytest.raises(RowsRefused) as caught:
            file.write_text('{"k": "a"}\n' + line)
            read_input(rows, str(file))
        assert words in caught.value.message
    with pytest.raises(RowsRefused, match="cannot be read"):
        read_input(rows, str(tmp_path / "nothing.parquet"))


@pytest.mark.parametrize(
    ("step", "frame", "words"),
    [
        ("hours", pl.DataFrame(), "keeps several states that belong together (slices, watermark): writing them is not"),
        ("firsts", pl.DataFrame(), "not supported yet"),
        ("orders", pl.DataFrame(), "has no step 'orders' with state; it has: best, firsts, hours, lasts, sums"),
        ("sums", sums().drop("f"), "the column `f` is missing; it takes k, "),
        ("sums", sums().drop("k", "f"), "the columns `k`, `f` are missing"),
        (
            "sums",
            sums().with_columns(a=pl.lit(1)),
            "`a` cannot be derived from its result: supply its accumulator, `a.sum`",
        ),
        ("sums", sums().with_columns(pl.col("c").alias("c.count")), "`c` and `c.count` are the same"),
        ("sums", sums(2, k=["a", "a"]), "the key k=a occurs more than once"),
        ("sums", sums(2, c=[1, None]), "`c` is NULL in row 2"),
        ("sums", sums(c=[1.5]), "`c` is Float64, the state has bigint, which does not hold all of its values"),
        ("sums", sums(c=["1"]), "convert it first"),
        ("sums", sums(s=[1e30]), "`s` is Float64, the state has decimal(20,2)"),
        ("sums", sums().with_columns(x=1), "no column `x`"),
        ("best", ranked(1, None), "`rows` has a NULL among its elements in row 1"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(plan: Plan, step: str, frame: pl.DataFrame, words: str) -> None:
    with pytest.raises(RowsRefused) as caught:
        check_rows(plan, [StepRows(step, frame)])
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_a_total_may_be_called_as_what_is_kept_next_to_it() -> None:
    fields = (StateField("rows", BIGINT, nullable=False), StateField("rows.count", BIGINT))
    declaration = StateDeclaration(StateName("groups"), StateShape((StateField("k", STRING),), fields, KEY_HASH, 4))
    table = StateTable(declaration.shape)
    frame = table.make_frame([GroupEntries(0, [(("a",), (2, 1))])])
    assert frame.to_dicts() == [{"k": "a", "rows": 2, "rows.count": 1, "__tidegate_key_group": 0}]
    rows = StateRows(declaration, "step")
    assert [entries for _, entries in rows.entries(rows.read(frame))] == [[(("a",), (2, 1))]]


def test_a_key_may_be_called_as_the_accumulator_of_a_total() -> None:
    shape = StateShape((StateField("n.count", STRING),), (StateField("n.count", BIGINT),), KEY_HASH, 4)
    frame = StateTable(shape).make_frame([GroupEntries(0, [(("a",), (7,))])])
    assert frame.to_dicts() == [{"n.count": "a", "n.count_2": 7, "__tidegate_key_group": 0}]


def test_a_step_has_one_input(plan: Plan) -> None:
    with pytest.raises(RowsRefused, match="given twice"):
        check_rows(plan, [StepRows("sums", sums()), StepRows("sums", sums())])


@pytest.mark.parametrize("failing", range(2))
def test_what_cannot_be_finished_leaves_nothing(plan: Plan, failing: int) -> None:
    target = FakeStorage()
    put, count = target.put, 0

    def fail(name: str, data: bytes) -> None:
        nonlocal count
        count += 1
        put(name, data)
        if count > failing:
            raise StorageError("memory: full")

    target.put = fail  # type: ignore[method-assign]  # fails after its effect
    with pytest.raises(StorageError, match="full"):
        write(plan, target, StepRows("sums", sums()))
    assert target.list("") == []
    target.put = put  # type: ignore[method-assign]  # as it was
    put("something", b"")
    with pytest.raises(RowsRefused, match="is not empty"):
        write(plan, target, StepRows("sums", sums()))
