"""MessagePack decoded in C: never another value or another failure than msgspec's, and ordinary data wholly in C."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.depth import DEPTH
from tests.formats.any_msgpack import ODD, MsgpackRecords, damaged
from tests.formats.memory_batches import Compared, Fates
from tests.formats.schemas_of_json import FLAT, NESTED
from tidegate.datatypes import DataType
from tidegate.native.json import MSGPACK

SCHEMAS: Final = {"flat": FLAT, "nested": NESTED}
ROWS: Final = 100
TYPES: Final = tuple(kind for _, kind in (*FLAT, *NESTED))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DEPTH))
@pytest.mark.parametrize("name", SCHEMAS)
def test_any_record_has_the_same_fate(name: str, seed: int) -> None:
    """Good, odd and damaged ones together: a record next to a bad one keeps its row."""
    print(f"seed {seed}")
    rnd, fates = random.Random(seed), Fates()
    for oddity in (0, 0.02, 0.2):
        strict, share = rnd.random() < 0.3, rnd.choice((0.5, 1, 1))
        records = MsgpackRecords(rnd, oddity, strangers=not strict)
        values: list[bytes | None] = []
        for _ in range(ROWS):
            value = records.record(SCHEMAS[name])
            values.append(damaged(rnd, value) if rnd.random() < 0.3 else value)
        values[7:7] = [None, b"", b"\x80", b"\x90", b"{}"]
        read = [one for one in SCHEMAS[name] if rnd.random() < share]
        both = Compared(SCHEMAS[name], read, strict=strict, syntax=MSGPACK)
        fates = fates.plus(both.check(values))
    assert min(fates.certain, fates.bad) > 0.05 * sum(fates)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_ordinary_records_are_decoded_in_c_all_of_them(name: str) -> None:
    """Else the test of equality would compare msgspec with itself."""
    records = MsgpackRecords(random.Random(1))
    values: list[bytes | None] = [records.record(SCHEMAS[name]) for _ in range(ROWS)]
    found = Compared(SCHEMAS[name], syntax=MSGPACK).check(values)
    assert found.bad == 0
    assert found.left == 0


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_value_of_each_type_alone(kind: DataType) -> None:
    """In each unusual encoding, where nothing else of the record is odd."""
    both = Compared([("v", kind)], syntax=MSGPACK)
    assert both.check([b"\x81\xa1v" + one for one in ODD]).bad > 0
