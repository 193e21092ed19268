"""`tidegate state` as a command: forms, files, exit codes."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from tests.storage.stores import opener_of
from tests.support.command import tidegate
from tests.support.object_server import BUCKET, ObjectServer
from tidegate.cli.state import write_rows
from tidegate.datatypes import BIGINT, STRING, DataType

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
CHECKPOINTS = GOLDEN / "checkpoints"
SAVEPOINT = GOLDEN / "savepoints" / "savepoint-golden"
PIPELINE = """\
version: 1
name: shop
kafka:
  {bootstrap.servers: "localhost:9092", security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: me,
   sasl.password: "hunter2"}
checkpoints: {directory: DIRECTORY}
sources:
  orders: {topic: orders, schema: {k: string, n: "decimal(9,2)"}}
steps:
  - {name: sums, from: orders, key: k, aggregate: {c: count(*), s: sum(n)}}
sinks:
  out: {from: sums, topic: out}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.replace("DIRECTORY", str(tmp_path / "checkpoints")), encoding="utf-8")
    return path


def test_list_shows_states_rows_in_flight_and_positions() -> None:
    done = tidegate("state", "list", CHECKPOINTS)
    done.says(0, "checkpoint 14 of", "parallelism 2, 16 key groups", "12 and 3 changes", "day date, n bigint")
    assert "rows in flight on totals.input -> totals: " in done.text
    listing = json.loads(tidegate("state", "list", f"{CHECKPOINTS}@14", "--format", "json").stdout)
    (totals,) = (one for one in listing["states"] if one["step"] == "totals")
    assert (totals["state"], totals["keys"], totals["entries"], totals["changes"]) == ("totals", None, 12, 3)
    assert {"name": "n", "type": "bigint", "role": "result", "function": "count"} in totals["columns"]
    assert {position["source"] for position in listing["positions"]} == {"orders", "lines"}


def test_read_prints_a_table_that_is_cut(tmp_path: Path) -> None:
    done = tidegate("state", "read", SAVEPOINT, "totals", "--limit", 2)
    lines = done.text.splitlines()
    columns = ["customer", "day", "n", "paid", "mean_price", "begun", "net", "added", "__tidegate_key_group"]
    assert lines[0].split() == columns
    assert lines[1].split()[:5] == ["null", "2026-01-02", "2", "32.50", "16.250000"]
    assert lines[3] == "... more rows: give --limit, or --format json or parquet"
    whole = tidegate("state", "read", SAVEPOINT, "totals", "--output", tmp_path / "all.txt")
    assert (whole.code, whole.stdout) == (0, "")
    assert len((tmp_path / "all.txt").read_text().splitlines()) == 13


def test_a_row_of_a_table_is_one_line_and_no_order_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are texts of records: whoever could write one could write to the screen of who reads the state."""
    kinds = {"k\x1b[2J": STRING, "all": DataType("array", element=STRING), "n": BIGINT}
    table = SimpleNamespace(columns=[SimpleNamespace(name=name, type=kind) for name, kind in kinds.items()])
    frame = pl.DataFrame([["\x1b[2J\nä\x07", None], [["\x9b\u202e"], None], [1, 2]], schema=list(kinds))
    write_rows(cast("Any", table), iter([frame]), "table", None, None)
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()] == [
        ["k\\x1b[2J", "all", "n"],
        ["\\x1b[2J\\nä\\x07", '["\\x9b\\u202e"]', "1"],
        ["null", "null", "2"],
    ]


@pytest.mark.parametrize("option", ["--key=customer=\udce9", "--where=customer = '\udce9'"])
def test_what_is_asked_for_is_utf_8(option: str) -> None:
    tidegate("state", "read", SAVEPOINT, "totals", option).says(2, "is not UTF-8 text")


def test_read_takes_any_limit() -> None:
    done = tidegate("state", "read", SAVEPOINT, "totals", "--limit", 10**20)
    done.says(0)
    assert len(done.stdout.splitlines()) == 13


def test_a_parquet_file_that_cannot_be_written_is_told_and_so_is_a_damaged_state(tmp_path: Path) -> None:
    parquet = ("--format", "parquet", "--output")
    done = tidegate("state", "read", SAVEPOINT, "totals", *parquet, "/dev/full")
    done.says(1, "/dev/full cannot be written", "No space left on device")
    copy = shutil.copytree(SAVEPOINT, tmp_path / "copy")
    for path in (copy / "state").glob("*-totals-*.state"):
        path.write_bytes(path.read_bytes()[:-1])
    done = tidegate("state", "read", copy, "totals", *parquet, tmp_path / "rows.parquet")
    done.says(4, "storage-corrupt", str(copy), "-totals-")


def test_read_gives_lines_of_json_and_parquet(tmp_path: Path) -> None:
    done = tidegate("state", "read", SAVEPOINT, "totals", "--where", "n > 2 and customer = 'bob'", "--format", "json")
    (row,) = map(json.loads, done.stdout.splitlines())
    assert (row["day"], row["n"], row["__tidegate_key_group"]) == ("2026-01-02", 3, 11)
    key = ("--key", "customer=bob", "--key", "day=2026-01-02")
    done = tidegate("state", "read", SAVEPOINT, "totals", *key, "--raw", "--format", "json")
    assert json.loads(done.stdout)["n.count"] == 3
    target = tmp_path / "rows.parquet"
    tidegate("state", "read", SAVEPOINT, "totals", "--format", "parquet", "--output", target).says(0)
    assert pl.read_parquet(target).height == 12
    tidegate("state", "read", SAVEPOINT, "totals", "--format", "parquet").says(2, "name a file with --output")
    tidegate("state", "read", SAVEPOINT, "totals", "--format", "json", "--output", tmp_path / "no" / "x").says(
        1, "cannot be written: No such file"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("read", SAVEPOINT, "sums"), "it has: best, closing, early"),
        (("read", SAVEPOINT, "totals", "--key", "customer"), "write COLUMN=VALUE"),
        (("read", SAVEPOINT, "totals", "--key", "customer=a", "--key", "customer=b"), "is given twice"),
        (("list", GOLDEN / "nowhere"), "there is no such file or directory"),
    ],
)
def test_what_is_not_there_is_reported(arguments: tuple[object, ...], words: str) -> None:
    tidegate("state", *arguments).says(2, words)


@pytest.mark.slow
def test_a_savepoint_is_written_listed_read_and_shows_no_secret(file: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"k": "a", "c": 2, "s": 1.50}\n{"k": "b", "c": 1, "s": null}\n', encoding="utf-8")
    one, other = tmp_path / "one", tmp_path / "other"
    arguments = ("state", "write", one, file, "--step", "sums", "--input", rows)
    tidegate(*arguments, "--positions", 'orders={"0": 17, "1": 4}').says(0, "2 keys of 1 step, ")
    listing = json.loads(tidegate("state", "list", one, "--format", "json").stdout)
    assert [(place["partition"], place["offset"]) for place in listing["positions"]] == [
        ("orders[0]", 17),
        ("orders[1]", 4),
    ]
    assert b"hunter2" not in b"".join(path.read_bytes() for path in one.rglob("*") if path.is_file())
    parquet = tmp_path / "rows.parquet"
    pl.DataFrame(
        {"k": ["a", "c"], "c": [2, 5], "s": pl.Series([Decimal("1.5"), Decimal(0)], dtype=pl.Decimal(19, 2))}
    ).write_parquet(parquet)
    tidegate("state", "write", other, file, "--step", "sums", "--input", parquet).says(0)
    written = [tidegate("state", "read", made, "sums", "--format", "json").stdout for made in (one, other)]
    assert [{json.loads(line)["k"] for line in text.splitlines()} for text in written] == [{"a", "b"}, {"a", "c"}]

    tidegate(*arguments).says(2, "is not empty")
    tidegate("state", "read", f"{file}@1", "sums").says(2, "has no checkpoints yet")
    tidegate("state", "write", one, file, "--step", "sums", "--input", "x.jsonl", "--input", "y").says(
        2, "has one input"
    )
    for text, words in (
        ("payments={}", "sources are orders"),
        ("orders=soon", "write the offset of each partition as JSON"),
        ('orders={"other": {"0": 1}}', "orders does not read topic other"),
        ('orders={"0": -1}', "an offset must not be negative"),
        ('orders={"0": 17, "3": 4}', r"orders has partitions without an offset (1, 2): give each an offset"),
    ):
        new = (*arguments[:2], tmp_path / "new", *arguments[3:])
        tidegate(*new, "--positions", text).says(2, words)
    assert not (tmp_path / "new").exists()


def test_a_savepoint_in_an_object_store_is_reached_as_a_pipeline_file_says(tmp_path: Path) -> None:
    address = f"s3://{BUCKET}/a/b"
    with ObjectServer() as server:
        storage = opener_of(server.endpoint, tmp_path, address)()
        for path in (path for path in SAVEPOINT.rglob("*") if path.is_file()):
            storage.put(str(path.relative_to(SAVEPOINT)), path.read_bytes())
        reached = f"{{endpoint: '{server.endpoint}', credentials_file: {tmp_path / 'credentials'}}}"
        file = tmp_path / "pipeline.yaml"
        file.write_text(PIPELINE.replace("DIRECTORY", f"s3://{BUCKET}/other, storage: {reached}"), encoding="utf-8")
        for arguments in (
            ("savepoint", "verify", address),
            ("savepoint", "list", f"s3://{BUCKET}/a"),
            ("state", "list", address),
            ("state", "read", address, "totals", "--key", "customer=ann"),
        ):
            tidegate(*arguments, "--of", file).says(0)
        tidegate("state", "read", address, "totals", "--of", file, "--limit", 1).says(0, "32.50")
