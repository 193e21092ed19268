"""What the committed output must be, computed from the input alone, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.simulation.workload import OUTPUTS, InputRecord, Workload

SHOWN: Final = 6

Output = Mapping[str, Sequence[Sequence[bytes]]]
"""Topic -> partition -> values as a read-committed reader sees them."""


class History(msgspec.Struct, frozen=True):
    """A part of the output: a new one begins where somebody goes back to a savepoint or an older checkpoint."""

    done: frozenset[int]
    """Records that were processed before it."""
    output: Output


def count_missing(workload: Workload, records: Sequence[InputRecord], history: History) -> int:
    """How many records have not come out yet, in the last history."""
    missing = 0
    for topic in OUTPUTS[workload.topology]:
        name = "id" if topic == "paid" else "last_id"
        found = {msgspec.json.decode(value)[name] for partition in history.output[topic] for value in partition}
        missing += len({record.id for record in _wanted(topic, records)} - found - history.done)
    return missing


def check_output(
    workload: Workload, records: Sequence[InputRecord], history: History, *, complete: bool = True
) -> list[str]:
    """Everything that is wrong with it. One that is not complete must end between two records everywhere."""
    problems: list[str] = []
    for topic in OUTPUTS[workload.topology]:
        rows = [[msgspec.json.decode(value) for value in partition] for partition in history.output[topic]]
        wanted = {record.id: record for record in _wanted(topic, records) if record.id not in history.done}
        if topic == "paid":
            problems += _check_paid(wanted, rows, exactly_once=workload.exactly_once)
        else:
            before = [record for record in records if record.id in history.done]
            problems += _check_sums(wanted, before, rows, exactly_once=workload.exactly_once)
        name = "id" if topic == "paid" else "last_id"
        found = [row[name] for partition in rows for row in partition]
        problems += _check_set(topic, list(wanted), found, exactly_once=workload.exactly_once, complete=complete)
        if not complete:
            problems += _check_no_gap(topic, wanted, set(found))
    return problems


def _wanted(topic: str, records: Sequence[InputRecord]) -> list[InputRecord]:
    return [record for record in records if topic == "sums" or record.status == "paid"]


def _check_paid(wanted: Mapping[int, InputRecord], rows: list[list[Any]], *, exactly_once: bool) -> list[str]:
    problems = []
    for row in (row for partition in rows for row in partition):
        record = wanted.get(row["id"])
        if record is None:
            problems.append(f"paid: record {row['id']} should not be there")
        elif (row["customer"], row["total_cents"]) != (record.customer, record.quantity * record.price_cents):
            problems.append(f"paid: record {row['id']} is wrong: {row}")
    if exactly_once:
        problems += _check_order("paid", wanted, [[(row["customer"], row["id"]) for row in part] for part in rows])
    return problems[:SHOWN]


def _check_sums(
    wanted: Mapping[int, InputRecord], before: Sequence[InputRecord], rows: list[list[Any]], *, exactly_once: bool
) -> list[str]:
    if not exactly_once:
        return []
    problems = []
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for record in before:
        totals[record.sku] = _plus(totals[record.sku], record)
    for row in (row for partition in rows for row in partition):
        found = wanted.get(row["last_id"])
        if found is None or found.sku != row["sku"]:
            problems.append(f"sums: {row} is nobody's")
            continue
        totals[found.sku] = _plus(totals[found.sku], found)
        if (row["orders"], row["revenue_cents"]) != totals[found.sku]:
            problems.append(f"sums: {row} where orders, revenue = {totals[found.sku]} was expected")
    by_origin = [
        [((row["sku"], wanted[row["last_id"]].place), row["last_id"]) for row in part if row["last_id"] in wanted]
        for part in rows
    ]
    return [*problems[:SHOWN], *_check_order("sums", wanted, by_origin)]


def _plus(total: tuple[int, int], record: InputRecord) -> tuple[int, int]:
    return total[0] + 1, total[1] + record.quantity * record.price_cents


def _check_no_gap(topic: str, wanted: Mapping[int, InputRecord], found: set[int]) -> list[str]:
    """Of every input partition the first so many records, none left out; behind an exchange of every key in it.

    Rows of other keys may have been in flight when the last checkpoint was taken.
    """
    lanes: dict[object, list[int]] = defaultdict(list)
    for record in wanted.values():
        lanes[(record.place, record.sku) if topic == "sums" else record.place].append(record.id)
    problems = []
    for place, numbers in lanes.items():
        came = sum(number in found for number in numbers)
        left_out = sorted(set(numbers[:came]) - found)
        if left_out:
            problems.append(f"{topic}: records of {place} are left out: {left_out[:SHOWN]}")
    return problems


def _check_set(
    topic: str, wanted: Sequence[int], found: Sequence[int], *, exactly_once: bool, complete: bool
) -> list[str]:
    problems = []
    lost = sorted(set(wanted) - set(found))
    doubled = sorted(number for number, times in Counter(found).items() if times > 1)
    if lost and complete:
        problems.append(f"{topic}: {len(lost)} records are lost: {lost[:SHOWN]}")
    if doubled and exactly_once:
        problems.append(f"{topic}: {len(doubled)} records are there more than once: {doubled[:SHOWN]}")
    return problems


def _check_order(
    topic: str, wanted: Mapping[int, InputRecord], rows: Sequence[Sequence[tuple[object, int]]]
) -> list[str]:
    """Records of one key and one input partition come in input order, and in one output partition."""
    problems = []
    newest: dict[object, int] = {}
    homes: dict[object, int] = {}
    for partition, keyed in enumerate(rows):
        for key, number in keyed:
            record = wanted.get(number)
            if record is None:
                continue
            lane = (key, record.place)
            if newest.get(lane, -1) > number:
                problems.append(f"{topic}: key {key}: record {number} comes behind {newest[lane]}")
            newest[lane] = max(newest.get(lane, -1), number)
            if homes.setdefault(key, partition) != partition:
                problems.append(f"{topic}: key {key} is in partitions {homes[key]} and {partition}")
    return problems[:SHOWN]
