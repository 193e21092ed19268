"""The expected committed output, computed from the input alone, in plain Python."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from tidegate.formats.dead_letters import ORIGINAL, UNREAD
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.running import HALVES
from tidegate.simulation.shapes.shape import DEAD_TOPIC
from tidegate.simulation.windows import WINDOW_TOPICS, name_of
from tidegate.simulation.workload import InputRecord, Workload

SHOWN: Final = 6

Row = Mapping[str, Any]
Output = Mapping[str, Sequence[Sequence[Row]]]
"""Topic -> partition -> rows as a read-committed reader sees them."""
Total = tuple[int, int]
"""Orders and revenue."""


class Keyed(msgspec.Struct, frozen=True):
    """A topic of running totals."""

    key: str
    """Key column, in both the output and the input."""
    amount: Callable[[InputRecord], Total]
    """The amount that a record adds to a total."""
    total: Callable[[Row], Total]
    """The total that a row contains."""
    lane: Callable[[InputRecord], tuple[str, ...]]
    """Records of the same lane and input partition keep their order: those with the same key on every exchange."""


KEYED: Final[Mapping[str, Keyed]] = {
    "sums": Keyed(
        "sku",
        lambda record: (1, record.quantity * record.price_cents),
        lambda row: (row["orders"], row["revenue_cents"]),
        lambda record: (record.sku,),
    ),
    "customers": Keyed(
        "customer",
        lambda _record: (1, 0),
        lambda row: (row["orders"], 0),
        lambda record: (record.customer, record.sku),
    ),
}


def id_of(topic: str, row: Row) -> Hashable:
    """Returns the input record that an output row was made from, or its window."""
    if topic in WINDOW_TOPICS:
        return name_of(topic, row)
    return _record_of(topic, row)


def _record_of(topic: str, row: Row) -> int:
    found: int = row["last_id" if topic in KEYED else "id"]
    return found


def topics_of_records(workload: Workload) -> list[str]:
    """Returns the outputs whose rows are each made from one record. The oracle of the others is in `windows.py`."""
    return [topic for topic in workload.shape.topics if topic not in WINDOW_TOPICS]


def derive_wanted(topic: str, records: Sequence[InputRecord], done: frozenset[int]) -> dict[int, InputRecord]:
    """Returns the records that have a row in this topic and were not processed before."""
    return {record.id: record for record in records if _belongs(topic, record) and record.id not in done}


def has_come_out(
    topic: str,
    records: Sequence[InputRecord],
    done: frozenset[int],
    now: AbstractSet[Hashable],
    ever: AbstractSet[Hashable],
) -> bool:
    """Returns whether this topic is complete.

    `now`: the output since a restore that continued after `done`. Dead letters may have waited in the checkpoint.
    """
    whole = derive_wanted(topic, records, done).keys() <= now
    return whole and (topic != DEAD_TOPIC or derive_wanted(topic, records, frozenset()).keys() <= ever)


def _belongs(topic: str, record: InputRecord) -> bool:
    paid = record.status == "paid"
    if topic == DEAD_TOPIC:
        return record.bad == "source" or (record.bad == "step" and paid)
    if topic in HALVES and record.id % 2 != HALVES[topic]:
        return False
    return topic in KEYED or (paid and not record.bad)


def check_output(
    workload: Workload,
    records: Sequence[InputRecord],
    history: OracleHistory,
    *,
    complete: bool = True,
    moved: bool = False,
) -> list[str]:
    """Returns everything that is wrong with a history. An incomplete history must end between two records everywhere.

    `moved`: source partitions have moved to other slots. Dead letters that waited have not, so later ones overtake
    them.
    """
    problems: list[str] = []
    for topic in topics_of_records(workload):
        partitions = history.output[topic]
        wanted = derive_wanted(topic, records, history.done)
        if topic == "paid" or topic in HALVES:
            problems += _check_paid(wanted, partitions)
        elif topic == DEAD_TOPIC:
            problems += _check_dead_letters(derive_wanted(topic, records, frozenset()), partitions)
        elif workload.exactly_once:
            before = [record for record in records if record.id in history.done]
            changed = workload.changed if topic == "sums" else ""
            problems += _check_totals(topic, wanted, before, partitions, changed)
        else:
            problems += _check_bounds(topic, wanted, partitions, complete=complete)
        if workload.exactly_once:
            problems += _check_order(topic, wanted, partitions, moved=moved)
        found = [_record_of(topic, row) for partition in partitions for row in partition]
        problems += _check_set(topic, list(wanted), found, exactly_once=workload.exactly_once, complete=complete)
        if not complete and not (moved and topic == DEAD_TOPIC):
            problems += _check_no_gap(topic, wanted, set(found))
    return problems


def count_releases(histories: Sequence[OracleHistory]) -> int:
    """Returns the number of releases with totals in the output, at least 1."""
    found = {row["release"] for history in histories for row in _rows(history.output["sums"])}
    return max(1, len(found))


def check_committed(
    workload: Workload, records: Sequence[InputRecord], histories: Sequence[OracleHistory]
) -> list[str]:
    """Checks that what a restored checkpoint counts as processed was in the output before it.

    Dead letters may have waited in the checkpoint, for their bytes or for an earlier one that did. They come before or
    after it.
    """
    problems: list[str] = []
    for number, history in enumerate(histories):
        for topic in topics_of_records(workload):
            where = histories if topic == DEAD_TOPIC else histories[:number]
            found = {_record_of(topic, row) for one in where for row in _rows(one.output[topic])}
            before = [one for one in records if one.id in history.done]
            wanted = derive_wanted(topic, before, frozenset())
            if missing := sorted(wanted.keys() - found):
                problems.append(f"{topic}: continued after records that have never come out: {missing[:SHOWN]}")
    return problems


def _rows(partitions: Sequence[Sequence[Row]]) -> Iterator[Row]:
    return (row for partition in partitions for row in partition)


def _check_paid(wanted: Mapping[int, InputRecord], partitions: Sequence[Sequence[Row]]) -> list[str]:
    problems = []
    for row in _rows(partitions):
        record = wanted.get(row["id"])
        if record is None:
            problems.append(f"paid: record {row['id']} is unexpected")
        elif (row["customer"], row["total_cents"]) != (record.customer, record.quantity * record.price_cents):
            problems.append(f"paid: record {row['id']} is wrong: {row}")
    return problems[:SHOWN]


def _check_dead_letters(wanted: Mapping[int, InputRecord], partitions: Sequence[Sequence[Row]]) -> list[str]:
    """Checks that dead letters have the bytes of their record. Only bytes that had to be read back may be missing."""
    problems = []
    for row in _rows(partitions):
        record = wanted.get(row["id"])
        if record is None or row["place"] != str(record.place):
            problems.append(f"{DEAD_TOPIC}: {row} belongs to no input record")
        elif row["bytes"] == ORIGINAL:
            if (row["key"], row["value"]) != (record.customer.encode(), record.value):
                problems.append(f"{DEAD_TOPIC}: record {record.id} has other bytes: {row}")
        elif row["bytes"] != UNREAD or record.bad != "step":
            problems.append(f"{DEAD_TOPIC}: record {record.id} has no bytes: {row}")
    return problems[:SHOWN]


def _check_totals(
    topic: str,
    wanted: Mapping[int, InputRecord],
    before: Sequence[InputRecord],
    partitions: Sequence[Sequence[Row]],
    changed: str,
) -> list[str]:
    """Checks that every row has the total of its key as of its record, in output order.

    `changed`: see Workload. Totals that are reset or added count only the rows of their own release.
    """
    keyed, problems = KEYED[topic], []
    totals: dict[str, Total] = defaultdict(lambda: (0, 0))
    releases: dict[str, int] = {}
    since: dict[str, int] = defaultdict(int)
    for record in before:
        key = getattr(record, keyed.key)
        totals[key] = _plus(totals[key], keyed.amount(record))
    for row in _rows(partitions):
        found = wanted.get(row["last_id"])
        if found is None or getattr(found, keyed.key) != row[keyed.key]:
            problems.append(f"{topic}: {row} belongs to no input record")
            continue
        key = row[keyed.key]
        if changed and row["release"] != releases.get(key):
            releases[key], since[key] = row["release"], 0
            if changed == "reset":
                totals[key] = 0, 0
        since[key] += 1
        totals[key] = _plus(totals[key], keyed.amount(found))
        if keyed.total(row) != totals[key]:
            problems.append(f"{topic}: {row} where a total of {totals[key]} was expected")
        elif changed == "added" and row["since"] != since[key]:
            problems.append(f"{topic}: {row} where {since[key]} since its release were expected")
    return problems[:SHOWN]


def _check_bounds(
    topic: str, wanted: Mapping[int, InputRecord], partitions: Sequence[Sequence[Row]], *, complete: bool
) -> list[str]:
    """Checks totals with at-least-once: records may count twice, but none is omitted, and none counts without a row.

    A row includes every record of its lane up to its own. A checkpoint waits for the delivery of everything that its
    state has seen, so every record that a state has counted is already in the output. No total therefore exceeds the
    sum of the rows so far.

    At the end, some row of every key includes the whole total. This need not be the last row, because a slot of an
    older attempt may deliver its remaining rows when the others are done.
    """
    keyed, problems = KEYED[topic], []
    least = _least_totals(keyed, wanted)
    highest: dict[str, Total] = defaultdict(lambda: (0, 0))
    most: dict[str, Total] = defaultdict(lambda: (0, 0))
    for row in _rows(partitions):
        found = wanted.get(row["last_id"])
        if found is None or getattr(found, keyed.key) != row[keyed.key]:
            problems.append(f"{topic}: {row} belongs to no input record")
            continue
        key, total = row[keyed.key], keyed.total(row)
        most[key] = _plus(most[key], keyed.amount(found))
        highest[key] = max(highest[key][0], total[0]), max(highest[key][1], total[1])
        if not _covers(total, least[found.id]):
            problems.append(f"{topic}: {row} where at least {least[found.id]} was expected")
        elif not _covers(most[key], total):
            problems.append(f"{topic}: {row} where at most {most[key]} has come out")
    if complete:
        whole: dict[str, Total] = defaultdict(lambda: (0, 0))
        for record in wanted.values():
            key = getattr(record, keyed.key)
            whole[key] = _plus(whole[key], keyed.amount(record))
        problems += [
            f"{topic}: {key} comes to {highest[key]}, but its records to {total}"
            for key, total in whole.items()
            if not _covers(highest[key], total)
        ]
    return problems[:SHOWN]


def _least_totals(keyed: Keyed, wanted: Mapping[int, InputRecord]) -> dict[int, Total]:
    """Returns for every record the total of it and of those before it in its lane."""
    lanes: dict[object, Total] = defaultdict(lambda: (0, 0))
    least = {}
    for record in wanted.values():
        lane = (keyed.lane(record), record.place)
        lanes[lane] = least[record.id] = _plus(lanes[lane], keyed.amount(record))
    return least


def _plus(total: Total, amount: Total) -> Total:
    return total[0] + amount[0], total[1] + amount[1]


def _covers(total: Total, other: Total) -> bool:
    return total[0] >= other[0] and total[1] >= other[1]


def _lane_of(topic: str, record: InputRecord) -> tuple[object, ...]:
    """Returns the lane of a record. Records of one lane keep their order."""
    if topic == DEAD_TOPIC:
        return record.bad, record.place
    lane = KEYED[topic].lane(record) if topic in KEYED else (record.customer,)
    return (*lane, record.place)


def _check_no_gap(topic: str, wanted: Mapping[int, InputRecord], found: set[int]) -> list[str]:
    """Checks that the output has the first records of every input partition without a gap.

    After an exchange this holds for every key in a partition, because rows of other keys may have been in flight when
    the last checkpoint was taken.
    """
    lanes: dict[object, list[int]] = defaultdict(list)
    for record in wanted.values():
        lanes[_lane_of(topic, record) if topic in (*KEYED, DEAD_TOPIC) else record.place].append(record.id)
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
        problems.append(f"{topic}: {len(doubled)} records are duplicated: {doubled[:SHOWN]}")
    return problems


def _check_order(
    topic: str, wanted: Mapping[int, InputRecord], partitions: Sequence[Sequence[Row]], *, moved: bool
) -> list[str]:
    """Checks that records of one lane come in input order, and that all rows of a key are in one output partition."""
    problems = []
    key_column = KEYED[topic].key if topic in KEYED else "place" if topic == DEAD_TOPIC else "customer"
    newest: dict[object, int] = {}
    homes: dict[object, int] = {}
    for number, partition in enumerate(partitions):
        for row in partition:
            record = wanted.get(_record_of(topic, row))
            if record is None:
                continue
            lane, key = _lane_of(topic, record), row[key_column]
            if newest.get(lane, -1) > record.id and not (moved and topic == DEAD_TOPIC):
                problems.append(f"{topic}: key {key}: record {record.id} comes after {newest[lane]}")
            newest[lane] = max(newest.get(lane, -1), record.id)
            if homes.setdefault(key, number) != number:
                problems.append(f"{topic}: key {key} is in partitions {homes[key]} and {number}")
    return problems[:SHOWN]
