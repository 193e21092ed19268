"""Rows of a batch by the topic that each goes to."""

from __future__ import annotations

import polars as pl
import pytest

from tidegate.operators.builtin.kafka_sink import TopicChoice
from tidegate.sinks.runtime import split_rows

CHOICE = TopicChoice("topic", ("eu", "us"), "concat('', region)")


@pytest.mark.parametrize(
    ("topics", "expected", "bad"),
    [
        ([], {}, []),
        (["eu"], {"eu": [0]}, []),
        (["us", "us"], {"us": [0, 1]}, []),
        (["us", "eu", "us"], {"us": [0, 2], "eu": [1]}, []),
        (["eu", None], {"eu": [0]}, [1]),
        ([None, "eu"], {"eu": [1]}, [0]),
        ([None, None], {}, [0, 1]),
        (["asia"], {}, [0]),
        (["asia", "eu"], {"eu": [1]}, [0]),
    ],
)
def test_each_row_goes_to_its_topic_or_is_bad(
    topics: list[str | None], expected: dict[str, list[int]], bad: list[int]
) -> None:
    batch = pl.DataFrame({"topic": topics, "n": range(len(topics))}, schema={"topic": pl.String, "n": pl.Int64})
    found, failures = split_rows(batch, CHOICE)
    assert {one.topic: one.frame["n"].to_list() for one in found} == expected
    assert all(one.rows is None or list(one.rows) == one.frame["n"].to_list() for one in found)
    assert [failure.row for failure in failures] == bad
