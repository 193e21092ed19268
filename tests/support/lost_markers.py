"""Removes the marker of a transaction from partitions of a stopped broker, as a crash of Kafka can.

When Kafka 4.3.1 writes markers, it mistakes a partition without a leader for a deleted one. A coordinator that loads a
decided transaction before the broker's own partitions have leaders completes it and skips them. That is a race;
truncating the log before the marker produces the same state every time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path

from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import ProducerId, TopicPartition
from tidegate.kafka.batches import BatchHeader, derive_headers
from tidegate.kafka.facts import CoordinatorState, TransactionListing
from tidegate.kafka.transactions import TransactionClient


def lose_newest_markers(rig: Rig) -> None:
    """Crashes and restarts the broker so that the newest marker of every partition of both outputs is gone."""
    wait_until(lambda: not _ending(rig), "every coordinator has noted that all markers are written")
    newest = _newest(rig)
    rig.broker.kill()
    outputs = (rig.topic["paid"], rig.topic["totals"])
    partitions = [TopicPartition(topic, index) for topic in outputs for index in range(PARTITIONS)]
    lost = lose_markers(rig.broker, partitions, newest)
    assert lost > 0, "the planned fault did not happen: no partition ended with a marker"
    print(f"{lost} markers are lost")
    rig.broker.start()


def _ending(rig: Rig) -> list[TransactionListing]:
    """Returns transactions whose markers would be written after the crash."""
    with closing(TransactionClient({"bootstrap.servers": rig.broker.bootstrap})) as client:
        listed = client.list_transactions(f"{rig.pipeline.name}.")
    return [one for one in listed if one.state in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT)]


def _newest(rig: Rig) -> set[ProducerId]:
    """Returns the owners of committed transactions whose ids were not reused; a crash can lose only their markers."""
    with closing(TransactionClient({"bootstrap.servers": rig.broker.bootstrap})) as client:
        told = [client.describe(one.transactional_id) for one in client.list_transactions(f"{rig.pipeline.name}.")]
    complete = CoordinatorState.COMPLETE_COMMIT
    return {one.producer for one in told if one is not None and one.state is complete}


def lose_markers(
    broker: DevelopmentBroker, partitions: Iterable[TopicPartition], owners: Collection[ProducerId] | None = None
) -> int:
    """Removes the control batches at the end of each partition; returns the number of partitions that had any.

    With `owners` only their batches are removed. The broker's pid must be None.
    """
    assert broker.pid is None, "the broker must be down: its log is changed on disk"
    return sum(
        _cut(broker.directory / "data" / f"{part.topic}-{part.partition}", owners) for part in sorted(partitions)
    )


def _cut(directory: Path, owners: Collection[ProducerId] | None) -> bool:
    segment = max(directory.glob("*.log"))
    data = segment.read_bytes()
    headers = list(derive_headers(data))
    sizes = _sizes(data, len(headers))
    kept = _kept(headers, owners)
    if kept == len(headers):
        return False
    segment.write_bytes(data[: sum(sizes[:kept])])
    # Files that Kafka derived from the removed part. Without them it reads the segment again, as after a crash.
    for derived in [*directory.glob("*.snapshot"), *directory.glob("*.index"), *directory.glob("*.timeindex")]:
        derived.unlink()
    (directory.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return True


def _kept(headers: list[BatchHeader], owners: Collection[ProducerId] | None) -> int:
    count = len(headers)
    while count and _may_go(headers[count - 1], owners):
        count -= 1
    return count


def _may_go(header: BatchHeader, owners: Collection[ProducerId] | None) -> bool:
    owner = header.producer
    return header.commits is not None and (owners is None or owner in owners)


def _sizes(data: bytes, count: int) -> list[int]:
    sizes, place = [], 0
    for _ in range(count):
        sizes.append(12 + int.from_bytes(data[place + 8 : place + 12], "big"))
        place += sizes[-1]
    return sizes
