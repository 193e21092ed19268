"""Operators of the steps in `steps.py`, and rows for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.spec import Columns
from tidegate.user_code.describe import CodeDescription, describe

COLUMNS: Columns = (("user", STRING), ("n", BIGINT))
MAIN: Columns = (("user", STRING), ("clicks", BIGINT))
MODULE = "tests.operators.kinds.python.steps"


def operator(
    name: str,
    keys: tuple[str, ...] = ("user",),
    *,
    columns: Columns = COLUMNS,
    main: Columns = MAIN,
    others: dict[str, Columns] | None = None,
    settings: dict[str, Any] | None = None,
    timed: bool = False,
    module: str = MODULE,
) -> PythonOperator:
    """An operator of a step in a module."""
    reference = f"{module}:{name}"
    found = describe(reference, {})
    assert isinstance(found, CodeDescription), found
    policy = BadRecordPolicy.SKIP
    return PythonOperator(
        OperatorName("visits"), keys, columns, policy, found, settings or {}, main, others or {}, timed=timed
    )


def rows(*values: tuple[Any, int], first: int = 0, times: Sequence[int] = ()) -> pl.DataFrame:
    """A batch of `user` and `n`, as rows of one partition."""
    users, numbers = zip(*values, strict=True)
    frame = pl.DataFrame(
        {
            "user": pl.Series(users, dtype=pl.String),
            "n": pl.Series(numbers, dtype=pl.Int64),
            "__tidegate_partition": pl.Series([0] * len(values), dtype=pl.Int32),
            "__tidegate_offset": pl.Series(range(first, first + len(values)), dtype=pl.Int64),
        }
    )
    if not times:
        return frame
    return frame.with_columns(
        pl.Series("__tidegate_time", times, dtype=pl.Int64),
        pl.Series("__tidegate_behind", [0] * len(times), dtype=pl.Int64),
    )


def taken(tasks: Subtasks, *names: str) -> list[Any]:
    """These columns of the rows that have left the main output since the last call."""
    found = [tuple(row[name] for name in names) for row in tasks.rows()]
    return [one[0] for one in found] if len(names) == 1 else found


def messages(tasks: Subtasks) -> list[tuple[int, str]]:
    """The failed rows since the last call, with the reasons; the lines of `steps.py` are left out."""
    found = [(one.row, re.sub(r"steps\.py:\d+", "steps.py", one.message)) for one in tasks.out.failures]
    tasks.out.failures.clear()
    return found
