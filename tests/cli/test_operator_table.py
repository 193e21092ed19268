"""The table of operators that `tidegate status` shows."""

from __future__ import annotations

import io

from rich.console import Console

from tidegate.cli.operator_table import find_busiest, render_operators
from tidegate.daemon.status import OperatorStatus
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


ORDERS = operator("orders", "source", 1_200_000, 1_200_000, 0, 0.12)
PAID = operator("paid", "filter", 1_200_000, 900_000, 300_000, 0.61)


def test_every_operator_has_a_line_and_the_busiest_is_marked() -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_operators([ORDERS, PAID]))
    file = console.file
    assert isinstance(file, io.StringIO)
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "operator  kind           in        out  filtered  failed    in/s  busy",
        "orders    source  1,200,000  1,200,000         0       2  20,000   12%",
        "paid      filter  1,200,000    900,000   300,000       2  20,000   61%  busiest",
    ]


def test_nobody_is_the_busiest_while_all_rest() -> None:
    assert find_busiest([]) is None
    assert find_busiest([operator("orders", "source", 0, 0, 0, 0.0)]) is None
    assert find_busiest([ORDERS, PAID]) is PAID
