"""The headers of a batch as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import polars as pl

from tidegate.formats.contract import FlatHeaders, Headers


def flatten_headers(headers: Sequence[Headers]) -> FlatHeaders:
    """Returns the headers of all messages in sequence."""
    parts = list(chain.from_iterable(chain.from_iterable(headers)))
    names, values = pl.Series("key", parts[::2], dtype=pl.String), pl.Series("value", parts[1::2], dtype=pl.Binary)
    return FlatHeaders(pl.Series(list(map(len, headers)), dtype=pl.Int64), names, values)
