"""How many bytes values and rows have."""

from __future__ import annotations

import polars as pl

from tidegate.formats.sizes import count_rows_within, size_of


def test_sizes_of_values_are_those_of_their_text() -> None:
    point = pl.Struct([pl.Field("x", pl.Int64), pl.Field("s", pl.String)])
    frame = pl.DataFrame(
        {
            "s": ["ä", None, ""],
            "l": [["a", None, "bc"], [], None],
            "p": [{"x": 1, "s": "abc"}, None, {"x": 1, "s": None}],
            "n": [1, 2, 3],
        },
        schema={"s": pl.String(), "l": pl.List(pl.String), "p": point, "n": pl.Int64()},
    )
    sizes = {name: size_of(pl.col(name), kind) for name, kind in frame.schema.items()}
    assert sizes.pop("n") is None
    found = frame.select(**{name: size for name, size in sizes.items() if size is not None})
    assert found["s"].to_list() == [2, None, 0]
    assert found["l"].to_list() == [48 + 3, 0, None]
    assert found["p"].to_list()[0] == 3


def test_rows_are_counted_up_to_a_size() -> None:
    frame = pl.DataFrame({"s": ["x" * 10, "x" * 10, None, "x" * 1000, "x"], "n": range(5)})
    assert [count_rows_within(frame, size) for size in (0, 10, 25, 1019, 1020, 5000)] == [1, 1, 3, 3, 4, 5]
    assert count_rows_within(frame.select("n"), 0) == 5
