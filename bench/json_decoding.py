"""CPU time per record of decoding JSON to a frame, in C compared with msgspec: from the bytes of a batch to Polars.

    python bench/json_decoding.py [--rows 5000] [--runs 9]

Needs a C compiler. Prints the medians of the runs in nanoseconds per record. Sets: orders of 190 bytes, of which 7 of 9
fields are declared; records of 50 fields, all or 7 of them declared; the same with strings outside ASCII; orders with
escapes; numbers as repr gives them (17 digits); timestamps and decimals; a nested order.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from tests.native.compiled import compiled_library
from tests.native.values import NativeValues
from tidegate.datatypes import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, DataType, decimal_of
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.native.json import RecordDecoder

Fields = Sequence[tuple[str, DataType]]
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
NATIONAL = ["größe", "überzeugt", "приветствие", "東京都", "señor", "naïve", "łódź", "ελληνικά", "smörgås", "😀"]
ORDER = (
    ("id", BIGINT),
    ("ts", BIGINT),
    ("customer", STRING),
    ("sku", STRING),
    ("qty", BIGINT),
    ("price", BIGINT),
    ("status", STRING),
)
WIDE = (
    *((f"i{n}", BIGINT) for n in range(18)),
    *((f"d{n}", DOUBLE) for n in range(10)),
    *((f"s{n}", STRING) for n in range(18)),
    *((f"b{n}", BOOLEAN) for n in range(4)),
)
FEW = tuple(WIDE[n] for n in (0, 5, 17, 20, 30, 40, 48))
DOUBLES = tuple((f"d{n}", DOUBLE) for n in range(5))
TYPED = (("at", TIMESTAMP), ("paid", decimal_of(12, 2)), ("day", DATE), ("due", TIMESTAMP), ("tax", decimal_of(9, 4)))
ITEM = DataType("struct", fields=(("sku", STRING), ("quantity", INT), ("price", decimal_of(10, 2))))
NESTED = (("id", BIGINT), ("items", DataType("array", element=ITEM)), ("tags", DataType("array", element=STRING)))


def make_order(rnd: random.Random, row: int, words: Sequence[str]) -> dict[str, Any]:
    """With `status` and `note` of the words given."""
    return {
        "id": row,
        "ts": 1_767_225_600_000 + row * 100,
        "customer": f"customer-{rnd.randrange(10_000)}",
        "sku": f"sku-{rnd.randrange(1000):04d}",
        "qty": rnd.randrange(1, 9),
        "price": rnd.randrange(100, 100_000),
        "country": "DE",
        "status": rnd.choice(words),
        "note": " ".join(rnd.choice(words) for _ in range(6)),
    }


def make_wide(rnd: random.Random, words: Sequence[str]) -> dict[str, Any]:
    """Fifty fields, 731 bytes with words in ASCII."""
    make: dict[DataType, Callable[[], Any]] = {
        BIGINT: lambda: rnd.randrange(10 ** rnd.randrange(1, 13)),
        DOUBLE: lambda: round(rnd.random() * 1000, 2),
        STRING: lambda: " ".join(rnd.choice(words) for _ in range(rnd.randrange(1, 4))),
        BOOLEAN: lambda: rnd.random() < 0.5,
    }
    return {name: make[kind]() for name, kind in WIDE}


def make_typed(rnd: random.Random) -> dict[str, Any]:
    """Timestamps with and without digits after the second, decimals as numbers and as texts."""
    day = f"2026-{rnd.randrange(1, 13):02d}-{rnd.randrange(1, 29):02d}"
    clock = f"{rnd.randrange(24):02d}:{rnd.randrange(60):02d}:{rnd.randrange(60):02d}"
    return {
        "at": f"{day}T{clock}.{rnd.randrange(1000):03d}Z",
        "paid": rnd.randrange(10**8) / 100,
        "day": day,
        "due": f"{day}T{clock}+01:00",
        "tax": f"{rnd.randrange(10**4)}.{rnd.randrange(100):02d}",
    }


def make_nested(rnd: random.Random, row: int) -> dict[str, Any]:
    """An order of two items on average, with tags."""
    items = [
        {"sku": f"sku-{rnd.randrange(1000)}", "quantity": rnd.randrange(9), "price": f"{rnd.randrange(1000)}.99"}
        for _ in range(rnd.randrange(1, 4))
    ]
    return {"id": row, "items": items, "tags": [rnd.choice(WORDS) for _ in range(rnd.randrange(3))]}


def make_sets(rows: int) -> dict[str, tuple[Fields, list[bytes]]]:
    """What is measured: declared fields, and values."""
    rnd = random.Random(3)

    def texts(records: list[dict[str, Any]], *, escaped: bool = False) -> list[bytes]:
        return [json.dumps(one, separators=(",", ":"), ensure_ascii=escaped).encode() for one in records]

    orders = texts([make_order(rnd, row, WORDS) for row in range(rows)])
    national = [make_order(rnd, row, NATIONAL) for row in range(rows)]
    wide = texts([make_wide(rnd, WORDS) for _ in range(rows)])
    numbers = texts([{name: rnd.random() for name, _ in DOUBLES} for _ in range(rows)])
    return {
        "orders, 7 of 9 fields": (ORDER, orders),
        "orders, outside ASCII": (ORDER, texts(national)),
        "orders, escaped": (ORDER, texts(national, escaped=True)),
        "wide, 50 of 50": (WIDE, wide),
        "wide, 50 of 50, outside ASCII": (WIDE, texts([make_wide(rnd, NATIONAL) for _ in range(rows)])),
        "wide, 7 of 50": (FEW, wide),
        "5 doubles of 17 digits": (DOUBLES, numbers),
        "timestamps and decimals": (TYPED, texts([make_typed(rnd) for _ in range(rows)])),
        "nested": (NESTED, texts([make_nested(rnd, row) for row in range(rows)])),
    }


def measure(run: Callable[[], Any], rows: int) -> float:
    """Nanoseconds of CPU time per record."""
    gc.collect()
    begin = time.process_time()
    run()
    return (time.process_time() - begin) / rows * 1e9


def compare(name: str, fields: Fields, values: list[bytes], runs: int) -> None:
    """Print one line."""
    slow = JsonDecoder(fields)
    fast = RecordDecoder(compiled_library(), DataType("struct", fields=tuple(fields)), dict(fields), strict=False)
    there = NativeValues(values)

    def in_c() -> pl.DataFrame:
        found = fast.decode(there.addresses, there.lengths, len(there))
        assert not found.left, values[found.left[0]]
        return found.frame

    assert in_c().equals(slow.decode_values(values).frame)
    pairs = [
        (measure(lambda: slow.decode_values(values), len(values)), measure(in_c, len(values))) for _ in range(runs)
    ]
    by_msgspec, by_c = (statistics.median(times) for times in zip(*pairs, strict=True))
    size = sum(map(len, values)) // len(values)
    print(f"{name:32s} {size:5d} B {by_msgspec:9.0f} msgspec {by_c:7.0f} C {by_msgspec / by_c:6.1f} times")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    for name, (fields, values) in make_sets(arguments.rows).items():
        compare(name, fields, values, arguments.runs)


if __name__ == "__main__":
    main()
