"""State as a DataFrame of a real Spark: schema, values of all types, parts read by tasks."""

from __future__ import annotations

import shutil
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.state_folder import PATH_OPTIONS, ROWS, SCHEMA, write_state
from tidegate.spark.state_source import (
    StateOptionRefused,
    derive_parts,
    derive_schema,
    read_options,
    read_part,
    read_state,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN = (("rome", Decimal("1.50"), 1), (None, None, None), (None, None, None))
"""Of each of ROWS: `place.city`, `m['x']`, `l[0]`."""
GOLDEN = Path(__file__).parents[1] / "golden" / "format-1" / "checkpoints"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_state(tmp_path_factory.mktemp("state") / "savepoint")


@pytest.mark.slow
def test_a_state_is_a_typed_dataframe_that_tasks_read_in_parts(spark: SparkSession, folder: Path) -> None:
    frame = read_state(spark, path=str(folder), **PATH_OPTIONS, partitions=2)
    assert frame.schema.simpleString() == SCHEMA
    assert frame.rdd.getNumPartitions() > 1
    found = frame.selectExpr(
        *("k", "d", "cast(at as string)", "l", "place", "m", "a", "place.city", "try_element_at(m, 'x')", "get(l, 0)")
    ).collect()
    expected = [(*row, *within) for row, within in zip(ROWS, WITHIN, strict=True)]
    assert sorted(map(tuple, found)) == expected


def test_parts_are_ranges_of_key_groups_and_name_their_checkpoint(tmp_path: Path) -> None:
    copied = shutil.copytree(GOLDEN, tmp_path / "checkpoints")
    options = read_options({"path": str(copied), "step": "totals", "Partitions": "3"})
    parts = derive_parts(options)
    assert [part.options.checkpoint for part in parts] == ["14"] * len(parts)
    assert 1 < len(parts) <= 4
    assert all(left.key_groups.stop == right.key_groups.start for left, right in pairwise(parts))
    assert sum(len(part.files.files) for part in parts) < len(parts) * 4  # none has all files
    rows = [row for part in parts for row in read_part(part)]
    assert len({row[:2] for row in rows}) == len(rows) == 12
    assert derive_schema(options.open_table()).names[0] == "customer"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"step": "totals"}, "the option 'path' is missing"),
        ({"path": "x"}, "the option 'step' is missing"),
        ({"path": "x", "step": "y", "table": "z"}, "the option 'table' is unknown"),
        ({"path": "x", "step": "y", "partitions": "few"}, "an option is of another type"),
    ],
)
def test_options_are_checked(options: dict[str, str], words: str) -> None:
    with pytest.raises(StateOptionRefused) as caught:
        read_options(options)
    assert words in caught.value.message
