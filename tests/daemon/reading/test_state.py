"""The state as it is shown: sizes from the journal, and the rows of a key from a process of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.daemon.http.resources import Resource, ResourceRefused
from tidegate.daemon.reading import state
from tidegate.daemon.reading.read_state import FoundRows, LookupRequest, look_up
from tidegate.daemon.reading.state import StateContents, StateQuery, make_state_resource
from tidegate.errors import TidegateError
from tidegate.storage.base import NO_OPTIONS
from tidegate.tables import source

GOLDEN = Path(__file__).parents[2] / "golden" / "format-1" / "checkpoints"
PIPELINE = """\
version: 1
name: shop
kafka: {{bootstrap.servers: "localhost:9092"}}
checkpoints: {{directory: {directory}}}
sources:
  orders: {{topic: orders, schema: {{k: string, n: bigint}}}}
sinks:
  out: {{from: orders, topic: out}}
"""


def load(directory: Path, tmp_path: Path, more: str = "") -> LoadedPipeline:
    file = tmp_path / "my pipeline.yaml"
    file.write_text(PIPELINE.format(directory=directory) + more, encoding="utf-8")
    return read_pipeline(file, {})


def ask(resource: Resource[StateQuery], **query: Any) -> StateContents:
    async def read() -> Any:
        return await resource.read(StateQuery(**query))

    found = asyncio.run(read())
    assert isinstance(found, StateContents)
    return found


def test_sizes_are_those_of_the_newest_checkpoint(tmp_path: Path) -> None:
    resource = make_state_resource(load(GOLDEN, tmp_path), ())
    found = ask(resource)
    assert (found.checkpoint, found.rows) == (14, None)
    by_name = {(one.step, one.state): one for one in found.states}
    seen = by_name["once", "seen"]
    assert (seen.form, seen.files, seen.size_bytes) == ("keyed", 3, 2537)
    assert [(key.name, key.type) for key in seen.keys] == [
        ("time", "bigint"),
        ("customer", "string"),
        ("small", "smallint"),
    ]
    assert by_name["once", "watermark"].keys == []
    assert found.in_flight_bytes > 0
    assert {one.state for one in ask(resource, step="once").states} == {"seen", "watermark"}
    assert not resource.operates(StateQuery(step="once")), "sizes are figures"  # type: ignore[operator]  # it is a function
    assert resource.operates(StateQuery(step="once", key=("small=1",)))  # type: ignore[operator]  # as above


def test_before_the_first_checkpoint_nothing_is_there(tmp_path: Path) -> None:
    assert ask(make_state_resource(load(tmp_path / "none", tmp_path), ())) == StateContents(
        checkpoint=None, completed_at_ms=None
    )


def test_sizes_are_read_once_for_many_viewers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, count = [0.0], [0]

    def open_snapshot(*given: Any) -> source.StateSnapshot:
        count[0] += 1
        return source.open_snapshot(*given)

    monkeypatch.setattr(state, "open_snapshot", open_snapshot)
    resource = make_state_resource(load(GOLDEN, tmp_path), (), lambda: now[0])
    for at_s, reads in ((0, 1), (5, 1), (5.1, 2)):
        now[0] = at_s
        assert ask(resource).states
        assert count[0] == reads


def test_a_storage_that_does_not_answer_holds_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, opened = threading.Event(), [0]

    def open_snapshot(*given: Any) -> source.StateSnapshot:
        opened[0] += 1
        go_on.wait()
        return source.open_snapshot(*given)

    monkeypatch.setattr(state, "open_snapshot", open_snapshot)
    resource = make_state_resource(load(GOLDEN, tmp_path), ())
    with monkeypatch.context() as patient:
        patient.setattr(state, "DEADLINE_S", 0.01)
        for _ in range(3):
            with pytest.raises(ResourceRefused, match="the checkpoint directory has not answered"):
                ask(resource)
    assert opened == [1]
    go_on.set()
    wait_until(lambda: not any(one.name == "state sizes" for one in threading.enumerate()), "the thread ends")
    assert ask(resource).states


def test_a_key_is_looked_up_in_a_process_and_its_row_is_masked(tmp_path: Path) -> None:
    loaded = load(GOLDEN, tmp_path)
    (known,) = look_up(LookupRequest(str(GOLDEN), NO_OPTIONS, "totals", None, rows_of("totals"))).rows[:1]
    assert known
    resource = make_state_resource(loaded, {"day"})
    key = tuple(f"{name}={value}" for name, value in rows_of("totals").items())
    found = ask(resource, step="totals", key=key)
    assert (found.checkpoint, found.states, found.cut) == (14, [], False)
    assert found.rows is not None
    (row,) = (json.loads(bytes(one)) for one in found.rows)
    assert (row["customer"], row["day"]) == ("ann", "***")
    assert found.command is not None
    assert found.command.startswith(f"tidegate state read '{loaded.file}' totals --key customer=")


def rows_of(step: str) -> dict[str, str]:
    return {"customer": "ann", "day": "2026-01-01"}


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        ({"key": ("k=a",)}, 400, "a `key` needs a `step`"),
        ({"step": "totals", "key": ("k",)}, 400, "key 'k': write COLUMN=VALUE"),
        ({"step": "totals", "key": ("=k",)}, 400, "key '=k': write COLUMN=VALUE"),
        ({"step": "totals", "key": ("k=1", "k=2")}, 400, "key 'k' is given twice"),
    ],
)
def test_a_wrong_key_is_refused_before_anything_is_read(
    given: dict[str, Any], status: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ResourceRefused, match=message) as refused:
        ask(make_state_resource(load(GOLDEN, tmp_path), ()), **given)
    assert refused.value.refusal.status == status


@pytest.mark.parametrize(
    ("step", "keys", "code"),
    [("none", {"customer": "ann"}, "state-unknown"), ("totals", {"n": "1"}, "state-query-refused")],
)
def test_an_unknown_step_or_column_has_a_status(step: str, keys: dict[str, str], code: str) -> None:
    with pytest.raises(TidegateError) as refused:
        look_up(LookupRequest(str(GOLDEN), NO_OPTIONS, step, None, keys))
    assert refused.value.code == code
    assert code in state.STATUSES


def test_rows_are_limited_in_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.daemon.reading import read_state

    request = LookupRequest(str(GOLDEN), NO_OPTIONS, "totals", None, {})
    every = look_up(request)
    assert (len(every.rows), every.is_cut) == (12, False)
    monkeypatch.setattr(read_state, "ROWS_MAX", 5)
    assert cut(look_up(request)) == (5, True)
    monkeypatch.setattr(read_state, "ROWS_BYTES_MAX", len(every.rows[0]) + 1)
    assert cut(look_up(request)) == (1, True)


def cut(found: FoundRows) -> tuple[int, bool]:
    return len(found.rows), found.is_cut
