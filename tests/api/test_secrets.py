"""Secrets under `with`: code gets them, and no message, log line or dead letter shows them."""

from __future__ import annotations

from pathlib import Path

import tidegate

MODULE = """
def refuse(row, settings):
    raise ValueError("no access with " + settings["token"])
"""
PIPELINE = """
version: 1
name: refused
kafka: {bootstrap.servers: "localhost:9092"}
checkpoints: {directory: /tmp/tidegate}
dead_letters: {topic: dead}
sources: {orders: {topic: orders, schema: {id: bigint}, bad_records: dead-letter}}
steps:
  - {name: refused, from: orders, python: calls:refuse, with: {token: "${file:token}"}, output: {id: bigint}}
sinks: {out: {from: refused, topic: out}}
"""


def test_the_text_of_an_exception_does_not_carry_a_secret_out(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "token").write_text("hunter2-hunter2", encoding="utf-8")
    (tmp_path / "refused.yaml").write_text(PIPELINE.replace("file:", f"file:{tmp_path}/"), encoding="utf-8")
    pipeline = tidegate.load(tmp_path / "refused.yaml")
    result = pipeline.test({"orders": [{"id": 1}]})
    assert result["dead_letters"]["message"].to_list() == ["ValueError: no access with ***, at calls.py:3 in refuse"]
    assert "hunter2" not in pipeline.explain() + "".join(result.skipped)
