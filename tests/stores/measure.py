"""What checkpoints in a store cost: one object written, and many listed and deleted."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.storage.stores import NamedStore
from tidegate.storage.open import open_storage

SINGLE: Final = 200
BODY: Final = b"x" * 2000


def measure(store: NamedStore, objects: int) -> dict[str, float]:
    """Of so many `objects`, in seconds; of single calls in milliseconds."""
    storage = open_storage(f"{store.address}/measured", options=store.options)
    created: list[float] = []
    for number in range(SINGLE):
        began = time.perf_counter()
        assert storage.put_if_absent(f"journal/{number:012d}.json", BODY)
        created.append(time.perf_counter() - began)
    names = [f"state/{number // 10:012d}-totals-{number % 10}.state" for number in range(objects)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: storage.put(name, BODY), names))
    found = {"put_if_absent, median ms": round(statistics.median(created) * 1000, 1)}
    began = time.perf_counter()
    assert storage.list("state/") == names
    found[f"list {objects:,}, s"] = round(time.perf_counter() - began, 2)
    began = time.perf_counter()
    for name in names[:SINGLE]:
        storage.delete(name)
    found["delete one at a time, ms each"] = round((time.perf_counter() - began) * 1000 / SINGLE, 1)
    began = time.perf_counter()
    storage.delete_all(names[SINGLE:])
    found[f"delete_all of {objects - SINGLE:,}, s"] = round(time.perf_counter() - began, 2)
    assert storage.list("state/") == []
    storage.delete_all(storage.list(""))
    return found
