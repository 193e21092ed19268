"""The table of operators that `tidegate status` shows."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from tidegate.cli.progress import find_busiest, find_early, render_diagnoses, render_operators
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, OperatorStatus
from tidegate.ids import OperatorName


def operator(name: str, kind: str, rows_in: int, rows_out: int, filtered: int, busy: float) -> OperatorStatus:
    return OperatorStatus(
        name=OperatorName(name),
        kind=kind,
        rows_in=rows_in,
        rows_out=rows_out,
        filtered=filtered,
        failed=2,
        busy_seconds=1.0,
        rows_in_per_second=rows_in / 60,
        rows_out_per_second=0.0,
        busy_ratio=busy,
        subtasks=(),
    )


def shown(*operators: OperatorStatus) -> list[str]:
    console = Console(file=io.StringIO(), width=140)
    console.print(render_operators(operators))
    file = console.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


ORDERS = operator("orders", "source", 1_200_000, 1_200_000, 0, 0.12)
PAID = operator("paid", "filter", 1_200_000, 900_000, 300_000, 0.61)


def test_every_operator_has_a_line_and_the_busiest_is_marked() -> None:
    assert shown(ORDERS, PAID) == [
        "operator  kind           in        out  filtered  failed    in/s  busy",
        "orders    source  1,200,000  1,200,000         0       2  20,000   12%",
        "paid      filter  1,200,000    900,000   300,000       2  20,000   61%  busiest",
    ]


def test_event_time_has_columns_where_there_is_any() -> None:
    timed = msgspec.structs.replace(ORDERS, late=7, watermark_ms=1_777_629_600_000, event_time_lag_seconds=1234.56)
    idle = msgspec.structs.replace(timed, name=OperatorName("silent"), late=0, idle=True)
    assert [line[64:].split() for line in shown(timed, idle, PAID)] == [
        ["busy", "late", "watermark", "lag"],
        ["12%", "7", "2026-05-01T10:00:00.000Z", "1,234.6", "s"],
        ["12%", "0", "2026-05-01T10:00:00.000Z", "idle"],
        ["61%", "0", "busiest"],
    ]


def test_a_diagnosis_is_a_sentence_and_its_remedy() -> None:
    found = Diagnosis(
        code="sink-slow", severity=DiagnosisSeverity.PROBLEM, sentence="sink totals waits", remedy="do this"
    )
    assert [line for line, _ in render_diagnoses([found])] == ["problem sink-slow: sink totals waits", "    do this"]
    assert [line for line, _ in render_diagnoses([])] == ["no problems found"]


def test_nobody_is_the_busiest_while_all_rest() -> None:
    assert find_busiest([]) is None
    assert find_busiest([operator("orders", "source", 0, 0, 0, 0.0)]) is None
    assert find_busiest([operator("orders", "source", 0, 0, 0, 0.004)]) is None, "it would be busiest at 0%"
    assert find_busiest([ORDERS, PAID]) is PAID


def test_event_times_before_1971_are_a_line_with_what_helps() -> None:
    early = msgspec.structs.replace(ORDERS, before_1971=4, before_1971_remedy="do this")
    assert list(find_early([early, PAID])) == ["source orders: 4 records have event times before 1971; do this"]
