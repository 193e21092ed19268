"""`sample` against a count, whatever the batches, the restarts and the state backend are."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from tests.operators.kinds.sample import SampleOperator
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName

COLUMNS = (("customer", STRING), ("n", BIGINT))
FEW = SampleOperator(OperatorName("few"), ("customer",), COLUMNS, BadRecordPolicy.FAIL, every=3)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_every_third_record_of_a_customer_passes_over_a_restart(parallelism: int, backend: str) -> None:
    rows = [(f"c{n * n % 4}", n) for n in range(40)]
    steps = Subtasks(FEW, FEW.keys, backend)
    steps.process(pl.DataFrame(rows[:17], schema=["customer", "n"], orient="row"))
    steps.restart(parallelism)
    steps.process(pl.DataFrame(rows[17:], schema=["customer", "n"], orient="row"))
    seen: Counter[str] = Counter()
    expected = []
    for customer, n in rows:
        if seen[customer] % 3 == 0:
            expected.append(n)
        seen[customer] += 1
    assert sorted(row["n"] for row in steps.rows()) == expected
    steps.close()
