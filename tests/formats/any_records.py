"""JSON objects as topics hold them, and as nobody would write them."""

from __future__ import annotations

import datetime as dt

from hypothesis import strategies as st

MOMENTS = st.datetimes(timezones=st.sampled_from([None, dt.UTC, dt.timezone(dt.timedelta(hours=-9, minutes=-30))]))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    MOMENTS.map(dt.datetime.isoformat),
    st.dates().map(dt.date.isoformat),
    st.sampled_from(["2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "9999-12-31T23:59:59-01:00", "0001-01-01T00:00Z"]),
)
NAMES = st.one_of(
    st.sampled_from(["a", "b", "c", "order", "a.b", "__x", "__tidegate_x", 'q"', "b`t", "", "é", "x:y", "x y"]),
    st.text(max_size=4),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=8,
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=6)
