"""The campaign's input has what it promises, and its oracle notices each kind of mistake."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from tests.support.join_input import JoinInput, Side, find_late
from tests.support.join_oracle import JOINS, Expected, check_lookups, compare


@cache
def made() -> JoinInput:
    return JoinInput(seed=7, rows=20_000)


@pytest.mark.parametrize("side", ["orders", "payments"])
def test_both_sides_have_late_rows_null_keys_and_hot_keys(side: Side) -> None:
    entries = [entry for _, entry in made().written(side)]
    assert 0.002 < len(find_late(made().written(side))) / len(entries) < 0.02
    assert 0.01 < sum(entry.account is None for entry in entries) / len(entries) < 0.04
    assert Counter(entry.account for entry in entries if entry.account is not None).most_common(1)[0][1] > 30


def test_a_row_that_is_late_is_so_by_more_than_the_disorder_of_the_others() -> None:
    """Otherwise it would depend on batches which rows of a silent partition are late."""
    for side in ("orders", "payments"):
        late = find_late(made().written(side))
        highest = 0
        for _, entry in made().written(side):
            if entry.id not in late:
                assert entry.at >= highest - 10_000
            highest = max(highest, entry.at)


def test_every_join_of_the_campaign_has_rows_of_each_kind() -> None:
    expected = Expected(made())
    for name, join in JOINS.items():
        pairs = expected.pairs[name]
        assert pairs, name
        if join.kind in {"LEFT", "FULL"}:
            assert any(payment is None for _, payment in pairs), name
        if join.kind in {"RIGHT", "FULL"}:
            assert any(order is None for order, _ in pairs), name


def test_the_comparison_counts_lost_doubled_and_unexpected_rows() -> None:
    found = compare(Counter(["a", "b", "b"]), Counter(["b", "b", "b", "c"]))
    assert found[:3] == (1, 1, 1)
    assert not compare(Counter("ab"), Counter("ba"))


def test_versions_that_were_not_written_go_back_or_are_too_old_are_wrong() -> None:
    name, version = next((name, version) for name, version in made().loaded.items() if version == 2)
    segments = {row.version: row.segment for each, row in made().updates() if each == name and row is not None}
    right = {"customer": name, "version": version, "segment": segments[version]}
    old = {**right, "version": 1, "segment": segments[1]}
    assert check_lookups(made(), [[right, right], [{"customer": None, "version": None, "segment": None}]]) == []
    for wrong in (old, {**right, "segment": "s99"}, {**right, "version": None}):
        assert len(check_lookups(made(), [[wrong]])) == 1
