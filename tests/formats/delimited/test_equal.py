"""Lines decoded in C are what Python makes of them; what a sink writes is what a source reads."""

from __future__ import annotations

import random

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.formats.delimited.any_delimited import COLUMNS, DIALECTS, draw_lines, draw_rows, line_decoder
from tests.formats.memory_batches import is_same
from tests.native.compiled import compiled_library
from tests.native.values import NativeValues
from tidegate.formats.contract import ValueMemory
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.delimited.decoder import DelimitedDecoder
from tidegate.formats.kinds.delimited.dialect import Dialect
from tidegate.formats.kinds.delimited.encoder import DelimitedEncoder

pytestmark = pytest.mark.slow

LINES = 300
every_dialect = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: repr(one.separator + one.quote))


@every_dialect
@pytest.mark.parametrize("seed", range(DEPTH))
def test_c_decodes_lines_like_python(dialect: Dialect, seed: int) -> None:
    rnd = random.Random(f"{seed} {dialect}")
    declared = tuple(rnd.sample(COLUMNS, rnd.randrange(1, 4)))
    read = [one for one in declared if rnd.random() < 0.8]
    careful = DelimitedDecoder(declared, read, dialect)
    both = MemoryDecoder(
        line_decoder(compiled_library(), declared, {name for name, _ in read}, dialect), careful.decode_values
    )
    lines = draw_lines(rnd, dialect, declared, LINES)
    there = NativeValues(lines)
    found = both.decode(ValueMemory(there.addresses, there.lengths, len(lines)))
    expected = careful.decode_values(lines)
    assert list(found.failures) == list(expected.failures), seed
    assert is_same(found.frame, expected.frame), seed
    assert found.frame.height > LINES // 10 or dialect.separator == "-"


@every_dialect
@pytest.mark.parametrize("quote_all", [False, True])
def test_what_a_sink_writes_a_source_reads(dialect: Dialect, *, quote_all: bool) -> None:
    rows = draw_rows(random.Random(f"{DEPTH} {dialect}"), 400 * DEPTH)
    encoded = DelimitedEncoder(COLUMNS, dialect, quote_all=quote_all).encode(rows)
    bad = {one.row for one in encoded.failures}
    assert bool(bad) == (not dialect.quote)
    values = [value for row, value in enumerate(encoded.columns["value"]) if row not in bad]
    kept = rows.filter(~pl.int_range(pl.len()).is_in(list(bad)))
    if dialect.trim and not quote_all:  # an unquoted text loses its blanks
        trimmed = pl.col("text").str.strip_chars(dialect.blanks)
        blank = kept["text"].str.contains(r"^[ \t]|[ \t]$").fill_null(value=False)
        values = [value for value, one in zip(values, blank, strict=True) if not one]
        kept = kept.filter(~blank).with_columns(trimmed)
    decoder = DelimitedDecoder(COLUMNS, COLUMNS, dialect)
    found = decoder.decode_values(values)
    assert list(found.failures) == []
    assert is_same(found.frame, kept)
    there = NativeValues(values)
    rows_in_c = line_decoder(compiled_library(), COLUMNS, {name for name, _ in COLUMNS}, dialect).decode(
        there.addresses, there.lengths, len(values)
    )
    assert len(rows_in_c.left) < len(values) * 3 // 4
