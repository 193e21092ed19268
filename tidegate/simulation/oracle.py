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


def count_missing(workload: Workload, records: Sequence[InputRecord], output: Output) -> int:
    """How many records have not come out yet."""
    missing = 0
    for topic in OUTPUTS[workload.topology]:
        name = "id" if topic == "paid" else "last_id"
        found = {msgspec.json.decode(value)[name] for partition in output[topic] for value in partition}
        missing += len({record.id for record in records if topic == "sums" or record.status == "paid"} - found)
    return missing


def check_output(workload: Workload, records: Sequence[InputRecord], output: Output) -> list[str]:
    """Everything that is wrong with it."""
    problems: list[str] = []
    for topic in OUTPUTS[workload.topology]:
        rows = [[msgspec.json.decode(value) for value in partition] for partition in output[topic]]
        if topic == "paid":
            problems += _check_paid(workload, records, rows)
        else:
            problems += _check_sums(workload, records, rows)
    return problems


def _check_paid(workload: Workload, records: Sequence[InputRecord], rows: list[list[Any]]) -> list[str]:
    wanted = {record.id: record for record in records if record.status == "paid"}
    found = [row["id"] for partition in rows for row in partition]
    problems = _check_set("paid", list(wanted), found, exactly_once=workload.exactly_once)
    for row in (row for partition in rows for row in partition):
        record = wanted.get(row["id"])
        if record is None:
            problems.append(f"paid: record {row['id']} should not be there")
        elif (row["customer"], row["total_cents"]) != (record.customer, record.quantity * record.price_cents):
            problems.append(f"paid: record {row['id']} is wrong: {row}")
    if workload.exactly_once:
        problems += _check_order("paid", wanted, [[(row["customer"], row["id"]) for row in part] for part in rows])
    return problems


def _check_sums(workload: Workload, records: Sequence[InputRecord], rows: list[list[Any]]) -> list[str]:
    wanted = {record.id: record for record in records}
    found = [row["last_id"] for partition in rows for row in partition]
    problems = _check_set("sums", list(wanted), found, exactly_once=workload.exactly_once)
    if not workload.exactly_once:
        return problems
    totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in (row for partition in rows for row in partition):
        record = wanted.get(row["last_id"])
        if record is None or record.sku != row["sku"]:
            problems.append(f"sums: {row} is nobody's")
            continue
        count, sum_cents = totals[record.sku]
        totals[record.sku] = count + 1, sum_cents + record.quantity * record.price_cents
        if (row["orders"], row["revenue_cents"]) != totals[record.sku]:
            problems.append(f"sums: {row} where orders, revenue = {totals[record.sku]} was expected")
    by_origin = [
        [((row["sku"], wanted[row["last_id"]].place), row["last_id"]) for row in part if row["last_id"] in wanted]
        for part in rows
    ]
    return [*problems, *_check_order("sums", wanted, by_origin)]


def _check_set(topic: str, wanted: Sequence[int], found: Sequence[int], *, exactly_once: bool) -> list[str]:
    problems = []
    lost = sorted(set(wanted) - set(found))
    doubled = sorted(number for number, times in Counter(found).items() if times > 1)
    if lost:
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
