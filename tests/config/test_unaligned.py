"""`checkpoints.unaligned`: what may be written, and what it needs (contract B05, B48)."""

from __future__ import annotations

import pytest

from tidegate.config.load import LoadedPipeline, parse_pipeline

FILE = """\
version: 1
name: orders
kafka: {{bootstrap.servers: "localhost:9092"}}
checkpoints: {{directory: /state, {}}}
sources: {{orders: {{topic: orders, schema: {{id: bigint}}}}}}
sinks: {{out: {{from: orders, topic: orders-out}}}}
"""


def load(checkpoints: str) -> LoadedPipeline:
    return parse_pipeline(FILE.format(checkpoints), "p.yaml", {})


@pytest.mark.parametrize(
    ("written", "after_ms", "shown"),
    [
        ("never", None, "never"),
        ("always", 0, "always"),
        ("after 5s", 5000, "after 5s"),
        ("after  1m30s", 90_000, "after 1m30s"),
    ],
)
def test_B48_never_always_or_after_a_time(written: str, after_ms: int | None, shown: str) -> None:
    loaded = load(f"unaligned: {written}")
    assert loaded.problems == ()
    unaligned = loaded.settings.checkpoints.unaligned
    assert (unaligned.after_ms, str(unaligned)) == (after_ms, shown)


def test_it_is_never_by_default() -> None:
    assert load("retained: 3").settings.checkpoints.unaligned.after_ms is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sometimes", "`sometimes` is not one of the choices"),
        ("after", "`after` is not one of the choices"),
        ("after 5", "`5` is not a duration"),
        ("after 2h", "`2h` is out of range"),
        ("after 1ms", "`1ms` is out of range"),
        ("5", "expected never, always or after a time, got `5`"),
    ],
)
def test_anything_else_is_refused_with_what_could_be_written(written: str, message: str) -> None:
    (problem,) = load(f"unaligned: {written}").problems
    assert message in problem.message
    assert problem.remedy


@pytest.mark.parametrize("written", ["always", "after 5s"])
def test_B05_at_least_once_with_unaligned_is_refused(written: str) -> None:
    (problem,) = load(f"mode: at-least-once, unaligned: {written}").problems
    assert "needs `mode: exactly-once`" in problem.message
    assert load("mode: at-least-once, unaligned: never").problems == ()
