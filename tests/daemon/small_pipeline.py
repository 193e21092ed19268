"""A pipeline of one source and one sink, for what is checked before a start."""

from __future__ import annotations

from tidegate.config.load import LoadedPipeline, parse_pipeline

TEXT = """\
version: 1
name: check
kafka:
  bootstrap.servers: {servers}
checkpoints:
  directory: {directory}
  transaction_timeout: {timeout}
sources:
  orders: {{topic: {source}, schema: {{id: bigint}}, start: {start}}}
sinks:
  out: {{from: orders, topic: {sink}}}
"""


def pipeline(**words: object) -> LoadedPipeline:
    defaults = {"servers": "localhost:9092", "directory": "/tmp", "timeout": "15m", "start": "earliest"}
    loaded = parse_pipeline(TEXT.format(**{**defaults, "source": "in", "sink": "out", **words}), "p.yaml", {})
    assert loaded.problems == ()
    return loaded
