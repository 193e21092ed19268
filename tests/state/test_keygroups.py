"""Key groups are part of the format of state: the values here never change."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DATE, STRING, TIMESTAMP, DataType, decimal_of
from tidegate.formats.columns import TIMESTAMP as MOMENT
from tidegate.formats.columns import plain_values
from tidegate.native.library import loaded
from tidegate.state import keygroups
from tidegate.state.keygroups import KEYS_REMEMBERED_MAX, ROWS_FEW, _known_groups, key_group_of, key_groups_of_keys

SEED = 20_261_129


@pytest.fixture(scope="module", params=[None, loaded()], ids=["Polars", "C"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways to hash columns."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(keygroups, "loaded", lambda: request.param)
        yield


FRAME = pl.DataFrame(
    {
        "s": ["a", "", None, "é"],
        "i": [1, -5, None, 2**62],
        "b": [True, False, None, True],
        "x": [b"a", b"", None, b"\xff"],
        "d": [dt.date(2020, 1, 1), None, dt.date(1960, 1, 1), dt.date(1970, 1, 1)],
        "t": pl.Series([0, 1, None, -5], dtype=pl.Datetime("us", "UTC")),
        "m": pl.Series(["12.50", "-0.05", None, "0"]).cast(pl.Decimal(10, 2)),
    }
)


@pytest.mark.parametrize(
    ("keys", "groups"),
    [
        (["s"], [31, 66, 46, 51]),
        (["i"], [88, 112, 46, 65]),
        (["b"], [41, 2, 46, 41]),
        (["x"], [31, 66, 46, 46]),
        (["d"], [95, 46, 116, 85]),
        (["t"], [85, 88, 46, 112]),
        (["m"], [30, 109, 46, 31]),  # of the texts 12.50, -0.05 and 0.00
        (["s", "i"], [20, 124, 10, 110]),
        (["x", "b", "d", "t"], [125, 59, 43, 70]),
    ],
)
def test_golden_groups_of_128(keys: list[str], groups: list[int]) -> None:
    found = key_group_of(FRAME, keys, 128)
    assert found.dtype == pl.UInt16
    assert found.to_list() == groups


def draw_frame(rnd: random.Random, height: int) -> pl.DataFrame:
    """Columns of all types of keys that C hashes. Some texts have lengths at which the hash changes its way."""
    lengths = (0, 1, 3, 4, 8, 9, 12, 13, 16, 17, 32, 33, 64, 96, 128, 129, 240, 241, 1024, 1025, 2049)

    def column(draw: Callable[[], Any], kind: type[pl.DataType] | pl.DataType) -> pl.Series:
        values = [None if rnd.random() < 0.1 else draw() for _ in range(height)]
        return pl.Series(values, dtype=pl.Int64 if kind in (pl.Date, MOMENT) else kind).cast(kind)

    def number(bits: int) -> Callable[[], int]:
        return lambda: rnd.choice((0, -1, -(1 << bits - 1), (1 << bits - 1) - 1, rnd.randrange(-1000, 1000) % 128))

    return pl.DataFrame(
        {
            "s": column(lambda: "ä" * (rnd.choice(lengths) // 2) + rnd.choice(("", "b")), pl.String),
            "x": column(lambda: rnd.randbytes(rnd.choice(lengths)), pl.Binary),
            "b": column(lambda: rnd.random() < 0.5, pl.Boolean),
            "i8": column(number(8), pl.Int8),
            "i16": column(number(16), pl.Int16),
            "i32": column(number(32), pl.Int32),
            "i64": column(number(64), pl.Int64),
            "d": column(lambda: rnd.randrange(-719_162, 2_932_896), pl.Date),
            "t": column(lambda: rnd.randrange(-(10**16), 10**16), MOMENT),
        }
    )


def test_C_hashes_as_polars_does() -> None:
    print(f"seed {SEED}")
    rnd = random.Random(SEED)
    for _ in range(8):
        frame = pl.concat([draw_frame(rnd, rnd.randrange(1, 150)) for _ in range(2)], rechunk=rnd.random() < 0.5)
        frame = frame[rnd.randrange(frame.height) :]
        wanted = [[name] for name in frame.columns] + [rnd.sample(frame.columns, rnd.randrange(2, 5)) for _ in range(4)]
        for keys in wanted:
            groups = rnd.choice((1, 128, 32768))
            kinds = tuple(frame[key].dtype for key in keys)
            expected = keygroups._hash_rows(frame, keys, kinds, groups).to_list()
            assert key_group_of(frame, keys, groups).to_list() == expected, keys


def test_width_of_an_integer_does_not_matter() -> None:
    wide = pl.DataFrame({"i": pl.Series([1, -5], dtype=pl.Int64)})
    narrow = pl.DataFrame({"i": pl.Series([1, -5], dtype=pl.Int8)})
    assert key_group_of(wide, ["i"], 128).to_list() == key_group_of(narrow, ["i"], 128).to_list()


@pytest.mark.slow
@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_keys_as_values_have_the_groups_of_their_columns(rows: list[tuple[str | None, int | None]]) -> None:
    frame = pl.DataFrame(rows, schema={"a": pl.String, "b": pl.Int64}, orient="row")
    assert key_groups_of_keys(rows, [STRING, BIGINT], 128) == key_group_of(frame, ["a", "b"], 128).to_list()


KINDS = {
    "s": STRING, "i": BIGINT, "b": BOOLEAN, "x": BINARY, "d": DATE, "t": TIMESTAMP, "m": decimal_of(10, 2)
}  # fmt: skip


@pytest.mark.parametrize("names", [*KINDS, "si", "".join(KINDS)])
def test_keys_as_values_of_every_type(names: str) -> None:
    kinds = [KINDS[name] for name in names]
    rows = list(zip(*(plain_values(FRAME[name]) for name in names), strict=True))
    assert key_groups_of_keys(rows, kinds, 128) == key_group_of(FRAME, list(names), 128).to_list()


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_keys_of_which_all_are_NULL_have_the_group_of_NULL(kind: DataType) -> None:
    assert key_groups_of_keys([(None,), (None,)], [kind], 128) == [46, 46]


def test_borders_between_columns_count() -> None:
    frame = pl.DataFrame({"a": ["ab", "a"], "b": ["c", "bc"]})
    assert len(set(key_group_of(frame, ["a", "b"], 32768).to_list())) == 2


def test_a_key_of_floats_is_refused() -> None:
    with pytest.raises(TypeError, match="a key cannot be of type Float64: take a string, integer, decimal"):
        key_group_of(pl.DataFrame({"f": [1.0]}), ["f"], 128)


def test_groups_are_spread_evenly() -> None:
    frame = pl.DataFrame({"k": [f"key-{i}" for i in range(128_000)]})
    counts = key_group_of(frame, ["k"], 128).value_counts()["count"]
    assert counts.len() == 128
    assert counts.min() > 850  # type: ignore[operator]  # a count
    assert counts.max() < 1150  # type: ignore[operator]  # a count


@pytest.mark.slow
@given(st.lists(st.sampled_from(["a", "b", None, "é"]), min_size=1, max_size=2 * ROWS_FEW))
def test_keys_that_are_remembered_have_the_groups_of_those_that_are_hashed(keys: list[str | None]) -> None:
    frame = pl.DataFrame({"a": keys}, schema={"a": pl.String})
    hashed = key_group_of(pl.concat([frame] * (ROWS_FEW + 1)), ["a"], 128).to_list()[: len(keys)]
    assert key_group_of(frame, ["a"], 128).to_list() == hashed
    assert list(key_groups_of_keys([(key,) for key in keys], [STRING], 128)) == hashed


def test_what_is_remembered_is_bounded() -> None:
    for first in range(0, 2 * KEYS_REMEMBERED_MAX, ROWS_FEW):
        key_groups_of_keys([(number,) for number in range(first, first + ROWS_FEW)], [BIGINT], 7)
    assert len(_known_groups((BIGINT,), 7)) <= KEYS_REMEMBERED_MAX
