"""Calls that wait in a checkpoint against the pipeline as it is now: what a slot would refuse is known before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import polars as pl
import pytest

from tests.coordinator.values import ME, completed
from tidegate.checks.unfit_state import refuse_unfit_state
from tidegate.cli.main import run_command
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.formats.arrow import encode_frame
from tidegate.formats.row_kinds import ROW_KIND, UPDATE_BEFORE
from tidegate.ids import OperatorName, SlotIndex
from tidegate.journal.journal import Journal
from tidegate.journal.state_files import derive_head
from tidegate.operators.calls.spec import IN_FLIGHT
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.errors import StateUnreadable
from tidegate.state.snapshot import encode_snapshot
from tidegate.storage.base import Storage
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage

PIPELINE = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: "file:///nowhere/shop"}
sources:
  orders: {topic: orders, schema: {id: bigint, sku: string, customer: string}}
steps:
  - {name: priced, from: orders, http: {url: "https://prices/{sku}"}, output: {price: double}}
  - {name: chosen, from: priced, select: {id: id, price: price}}
sinks:
  out: {from: chosen, topic: out, key: id}
"""
WIDER = ("{id: id, price: price}", "{id: id, price: price, customer: customer}")
TIMED = (
    ("customer: string}}", "customer: string}, watermark: {delay: 10s}}"),
    ("select: {id: id, price: price}", "key: id, window: {tumbling: 1m}, aggregate: {price: max(price)}"),
)
WAITING: Mapping[str, object] = {
    "id": [1, 2],
    "sku": ["a", "b"],
    "__tidegate_partition": [0, 0],
    "__tidegate_offset": [5, 6],
}


def plan_of(*changes: tuple[str, str]) -> Plan:
    return build_plan(parse_pipeline(text_of(*changes), "shop.yaml", {}))


def text_of(*changes: tuple[str, str]) -> str:
    text = PIPELINE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


def identity_of(plan: Plan) -> Identity:
    return Identity("shop", {}, plan.parallelism, plan.max_parallelism, fingerprints=derive_fingerprints(plan))


def written(storage: Storage, **more: object) -> CompletedCheckpoint:
    """A checkpoint in which two rows wait, in two files of which the second is the larger one."""
    handles = []
    for subtask, columns in enumerate((WAITING, {**WAITING, **more})):
        rows = pl.DataFrame(columns, schema_overrides={"__tidegate_partition": pl.Int32, ROW_KIND: pl.Int8})
        values = [(subtask, 2, encode_frame(rows))]
        data = seal(encode_snapshot("priced", IN_FLIGHT, {0: [((), value) for value in values]}))
        path = f"state/000000000001-priced-{subtask}.in_flight.state"
        storage.put(path, data)
        digest = hashlib.sha256(data).hexdigest()
        slot = SlotIndex(subtask)
        handles.append(
            StateHandle(OperatorName("priced"), slot, path, len(data), digest, *derive_head(data), state=IN_FLIGHT.name)
        )
    return completed(1, states=handles)


def check(storage: Storage, plan: Plan, checkpoint: CompletedCheckpoint, before: Plan) -> None:
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(plan.max_parallelism))
    facts = RestoreFacts(identity_of(plan), {}, stateful, frozenset(), plan)
    refuse_unfit_state(storage, checkpoint, identity_of(before), facts)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "checkpoints"))


def test_rows_that_the_step_can_take_are_let_through(storage: LocalStorage) -> None:
    check(storage, plan_of(), written(storage), plan_of())
    check(storage, plan_of(), written(storage, customer=["ann", "bob"]), plan_of())


def test_rows_without_a_column_that_is_needed_now_are_refused(storage: LocalStorage) -> None:
    with pytest.raises(StateUnreadable, match=r"^2 rows in flight of priced have no column customer string .*; start"):
        check(storage, plan_of(WIDER), written(storage), plan_of())


def test_every_file_is_looked_at(storage: LocalStorage) -> None:
    """The first one has been written by a subtask that had no rows of the older definition."""
    checkpoint = written(storage, **{ROW_KIND: [None, UPDATE_BEFORE]})
    with pytest.raises(StateUnreadable, match="2 rows in flight of priced contain retractions"):
        check(storage, plan_of(), checkpoint, plan_of())


def test_rows_without_event_time_are_refused_where_a_window_comes_after_them_now(storage: LocalStorage) -> None:
    with pytest.raises(StateUnreadable, match="2 rows in flight of priced have no event time"):
        check(storage, plan_of(*TIMED), written(storage), plan_of())


def test_rows_of_a_renamed_step_are_looked_at_by_its_name_of_now(storage: LocalStorage) -> None:
    renamed = (("name: priced,", "name: costed, was: priced,"), ("from: priced", "from: costed"))
    check(storage, plan_of(*renamed), written(storage), plan_of())
    with pytest.raises(StateUnreadable, match="2 rows in flight of costed have no column customer"):
        check(storage, plan_of(WIDER, *renamed), written(storage), plan_of())


def test_damage_is_for_the_recovery(storage: LocalStorage) -> None:
    checkpoint = written(storage)
    for one in checkpoint.states:
        storage.put(one.path, b"spoilt")
    check(storage, plan_of(WIDER), checkpoint, plan_of())


def test_validate_and_upgrade_say_it_at_the_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("file:///nowhere/shop", f"file://{tmp_path}/checkpoints")
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    journal = Journal(storage, ME, retained=3, id_reserve=5)
    journal.take_over(identity_of(plan_of()), 1)
    journal.append_checkpoint(msgspec.structs.replace(written(storage), attempt=journal.state.attempt))
    file = tmp_path / "shop.yaml"
    file.write_text(text_of(where), encoding="utf-8")
    assert run_command(["validate", str(file)]) == 0
    assert run_command(["upgrade", str(file)]) == 0
    file.write_text(text_of(where, WIDER), encoding="utf-8")
    capsys.readouterr()
    assert run_command(["validate", str(file)]) == 4
    assert "steps.priced.name: 2 rows in flight of priced have no column customer string" in capsys.readouterr().out
    assert run_command(["upgrade", "--format", "json", str(file)]) == 4
    (refusal,) = json.loads(capsys.readouterr().out)["refusals"]
    assert refusal["name"] == "priced"
    assert refusal["remedy"].startswith("Start with the old definition, stop it with SIGTERM")
