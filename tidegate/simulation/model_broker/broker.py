"""The model broker: topics, the transaction coordinator, and the offsets of consumer groups.

Pure: every request carries the time. Events without a request (timeouts, markers that follow a decision late, expiry of
ids) are caught up with at the next request, in the order in which they were due. Faults are settings:
`marker_delay_ms`, `coordinator_away`, `leader_away`, and the age of what clients learn about nodes (`placement`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID
from zlib import crc32

import msgspec

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.batches import BatchHeader
from tidegate.kafka.facts import CoordinatorState, TopicFacts, TransactionDescription, TransactionListing
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.coordinator import TransactionCoordinator, TransactionEntry
from tidegate.simulation.model_broker.log import FetchedBatches, PartitionLog, ProducerEntry, Record, Stamp
from tidegate.simulation.model_broker.placement import Placement

ID_EXPIRY_MS: Final = 7 * 24 * 3600 * 1000
BATCH_BYTES_MAX: Final = 1_048_588
"""Kafka's default of `max.message.bytes`."""


NO_OFFSET: Final = -1
ANY_EPOCH: Final = -1


class Offsets(msgspec.Struct, frozen=True):
    """Start of a partition, end for read-committed readers, and end of the log."""

    start: int
    stable: int
    end: int


class _Topic(msgspec.Struct, frozen=True):
    facts: TopicFacts
    logs: tuple[PartitionLog, ...]
    settings: dict[str, str]


class ModelBroker:
    """One cluster. Methods answer at once and raise RequestRefused with Kafka's code; `now_ms` never decreases."""

    def __init__(self, cluster_id: str = "model", *, id_expiry_ms: int = ID_EXPIRY_MS) -> None:
        self.cluster_id = cluster_id
        self.marker_delay_ms = 0
        """Time between the decision about a transaction and its first marker, and before each further marker."""
        self.id_lifetime_ms = id_expiry_ms
        self._coordinator = TransactionCoordinator()
        self._topics: dict[str, _Topic] = {}
        self._topics_made = 0
        self._open: dict[TransactionalId, tuple[int, TransactionEntry]] = {}
        """Ids with something due, and when: the timeout of an open transaction, or the next marker."""
        self._due_ms = 0
        """Nothing is due before this time."""
        self._coordinator_away: tuple[int, Code] = (0, Code.NONE)
        self.placement = Placement()
        self._markers_lost = 0
        self.strays: list[str] = []
        """Markers from outside that contradict the coordinator: readers see an outcome that was never decided."""
        self._groups: dict[str, dict[TopicPartition, tuple[int, str]]] = {}

    # -- topics ------------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Creates a topic. A topic that is recreated after its deletion gets a new id."""
        self._topics_made += 1
        logs = tuple(PartitionLog() for _ in range(partitions))
        facts = TopicFacts(str(UUID(int=crc32(self.cluster_id.encode()) << 64 | self._topics_made)), partitions)
        self._topics[name] = _Topic(facts, logs, {"max.message.bytes": str(BATCH_BYTES_MAX), **(settings or {})})

    def add_topic_partitions(self, name: str, partitions: int) -> None:
        """Adds partitions to a topic, up to this number."""
        topic = self._topics[name]
        added = tuple(PartitionLog() for _ in range(partitions - topic.facts.partitions))
        facts = TopicFacts(topic.facts.topic_id, partitions)
        self._topics[name] = _Topic(facts, topic.logs + added, topic.settings)

    def delete_topic(self, now_ms: int, name: str) -> None:
        """Deletes a topic with all its records."""
        self._catch_up(now_ms)
        del self._topics[name]

    def delete_records(self, now_ms: int, partition: TopicPartition, before: int) -> None:
        """Deletes records, as retention does: the log then begins at `before`."""
        self._catch_up(now_ms)
        self._log(partition).delete_before(before)

    def forget_producers(self, now_ms: int, partition: TopicPartition) -> None:
        """Forgets producers without an open transaction. A leader does so a day after their last batch."""
        self._catch_up(now_ms)
        self._log(partition).forget_producers()

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Returns the id and partition count of the topics that exist."""
        return {name: self._topics[name].facts for name in names if name in self._topics}

    def topic_names(self) -> list[str]:
        """Returns the names of all topics."""
        return list(self._topics)

    def settings(self, name: str) -> Mapping[str, str]:
        """Returns the settings of a topic that differ from the defaults. Raises RequestRefused."""
        if name not in self._topics:
            raise RequestRefused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return self._topics[name].settings

    # -- faults ------------------------------------------------------------------------------------------------------

    def coordinator_away(self, now_ms: int, until_ms: int, code: Code = Code.NOT_COORDINATOR) -> None:
        """Makes all coordinators unavailable until they have loaded their state.

        They stay on their node, or move to the next one with NOT_COORDINATOR. Requests that do not name a node are
        answered with `code`.
        """
        self.placement.restart_coordinators(now_ms, steps=int(code is Code.NOT_COORDINATOR))
        self._coordinator_away = (until_ms, code)

    def leader_away(self, now_ms: int, partition: TopicPartition, until_ms: int) -> None:
        """Leaves a partition without a leader, and thus without new markers, until another leader takes over."""
        self.placement.move_leader(partition, now_ms, until_ms)

    def time_out(self, now_ms: int, prefix: str) -> TransactionalId | None:
        """Times out the oldest open transaction, as a broker does whose clock has jumped. Returns its id.

        Only ids with the prefix count.
        """
        found = [
            (entry.opened_at_ms, known)
            for known, (_, entry) in self._open.items()
            if entry.state is CoordinatorState.ONGOING and known.startswith(prefix)
        ]
        if not found:
            return None
        known = min(found)[1]
        self._plan(known, now_ms, self._open[known][1])
        self._catch_up(now_ms)
        return known

    def take_ids(self, now_ms: int, prefix: str) -> list[TransactionalId]:
        """Starts other producers with the ids whose last transaction is committed, and returns these ids."""
        self._catch_up(now_ms)
        entries = self._coordinator.entries
        found = [
            known
            for known, entry in sorted(entries.items())
            if known.startswith(prefix) and entry.state is CoordinatorState.COMPLETE_COMMIT
        ]
        for known in found:
            self._coordinator.init(known, entries[known].timeout_ms, now_ms)
        return found

    def count_lost_markers(self, now_ms: int) -> int:
        """Returns how many markers were lost so far, even if they were written later by another party."""
        self._catch_up(now_ms)
        return self._markers_lost

    def step_clock(self, now_ms: int, ahead_ms: int) -> None:
        """Steps the brokers' clocks by `ahead_ms`, which may be negative.

        Timeouts and the expiry of ids come sooner by this amount.
        """
        self._catch_up(now_ms)
        for entry in self._coordinator.entries.values():
            entry.changed_at_ms -= ahead_ms
            if entry.state is CoordinatorState.ONGOING:
                entry.opened_at_ms -= ahead_ms
        for known, (due_ms, entry) in list(self._open.items()):
            if entry.state is CoordinatorState.ONGOING:
                # Not before now: the time of the end is that of the id's last change, from which its expiry counts.
                self._plan(known, max(now_ms, due_ms - ahead_ms), entry)
        self._catch_up(now_ms)

    def check_coordinator(self, now_ms: int, key: str, node: int) -> None:
        """Raises RequestRefused if the node does not coordinate the id or group, or is still loading."""
        if self.placement.coordinator(key, now_ms) != node:
            raise RequestRefused(Code.NOT_COORDINATOR)
        if now_ms < self._coordinator_away[0]:
            raise RequestRefused(Code.COORDINATOR_LOAD_IN_PROGRESS)

    def check_leader(self, now_ms: int, partition: TopicPartition, node: int, epoch: int = ANY_EPOCH) -> None:
        """Raises RequestRefused if the node does not lead the partition, or if the epoch differs."""
        self._log(partition)
        present = self.placement.leader_epoch(partition, now_ms)
        if epoch not in (ANY_EPOCH, present):
            raise RequestRefused(Code.FENCED_LEADER_EPOCH if epoch < present else Code.UNKNOWN_LEADER_EPOCH)
        if self.placement.leader(partition, now_ms) != node:
            raise RequestRefused(Code.NOT_LEADER_OR_FOLLOWER)

    # -- the transaction coordinator -----------------------------------------------------------------------------------

    def init_producer(self, now_ms: int, transactional_id: TransactionalId | None, timeout_ms: int) -> tuple[int, int]:
        """Returns producer id and epoch for a new producer (InitProducerId); without an id, for an idempotent one."""
        if transactional_id is None:
            return self._coordinator.next_producer_id(), 0
        self._enter(now_ms)
        entry = self._coordinator.init(transactional_id, timeout_ms, now_ms)
        if entry.preparing:
            self._write_markers(now_ms, transactional_id, entry)
            raise RequestRefused(Code.CONCURRENT_TRANSACTIONS)
        return entry.producer_id, entry.epoch

    def add_partitions(
        self,
        now_ms: int,
        transactional_id: TransactionalId,
        producer_id: int,
        epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Adds partitions to the transaction (AddPartitionsToTxn)."""
        self._enter(now_ms)
        wanted = sorted(partitions)
        for partition in wanted:
            self._log(partition)
        self._coordinator.add_partitions(transactional_id, producer_id, epoch, wanted, now_ms)
        entry = self._coordinator.entries[transactional_id]
        self._plan(transactional_id, entry.opened_at_ms + entry.timeout_ms, entry)

    def end_transaction(
        self, now_ms: int, transactional_id: TransactionalId, producer_id: int, epoch: int, commit: bool
    ) -> None:
        """Commits or aborts a transaction (EndTxn, version 4 at most).

        Without an error it has ended this way, now or earlier.
        """
        self._enter(now_ms)
        entry = self._coordinator.end(transactional_id, producer_id, epoch, commit, now_ms)
        if entry is not None:
            self._write_markers(now_ms, transactional_id, entry)

    def describe(self, now_ms: int, transactional_id: TransactionalId) -> TransactionDescription:
        """Describes one id (DescribeTransactions)."""
        self._enter(now_ms)
        return self._coordinator.describe(transactional_id)

    def list_transactions(self, now_ms: int, node: int | None = None) -> list[TransactionListing]:
        """Lists all ids that a node coordinates (None: all nodes), with their states."""
        self._enter(now_ms)
        return [
            TransactionListing(known, entry.producer_id, entry.state)
            for known, entry in sorted(self._coordinator.entries.items())
            if node is None or self.placement.coordinator(known, now_ms) == node
        ]

    # -- leaders of partitions ---------------------------------------------------------------------------------------

    def produce(
        self,
        now_ms: int,
        partition: TopicPartition,
        records: Sequence[Record],
        stamp: Stamp | None = None,
        transactional_id: TransactionalId | None = None,
    ) -> int:
        """Appends one batch and returns its base offset."""
        log = self._lead(now_ms, partition)
        self._check_records(now_ms, self._topics[partition.topic].settings, records)
        if stamp is not None and stamp.transactional and transactional_id is not None:
            entry = log.producers.get(stamp.producer_id)
            if entry is None or entry.epoch != stamp.epoch or entry.open_since is None:
                self._verify(log, partition, stamp, transactional_id)
        return log.append(stamp, records)

    def producers(self, now_ms: int, partition: TopicPartition) -> dict[int, ProducerEntry]:
        """Returns what the leader knows about each producer id (DescribeProducers)."""
        return dict(self._lead(now_ms, partition).producers)

    def write_marker(
        self, now_ms: int, partition: TopicPartition, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int
    ) -> None:
        """Ends a transaction in one partition (WriteTxnMarkers)."""
        log = self._lead(now_ms, partition)
        known = log.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise RequestRefused(Code.INVALID_PRODUCER_EPOCH)
        if known is not None and coordinator_epoch < known.coordinator_epoch:
            raise RequestRefused(Code.TRANSACTION_COORDINATOR_FENCED)
        self._note_stray(partition, producer_id, epoch, commit)
        log.append_marker(producer_id, epoch, commit, coordinator_epoch, now_ms)

    def _note_stray(self, partition: TopicPartition, producer_id: int, epoch: int, commit: bool) -> None:
        for transactional_id, entry in self._coordinator.entries.items():
            if (entry.producer_id, entry.epoch) != (producer_id, epoch) or entry.state is CoordinatorState.EMPTY:
                continue
            if entry.state is CoordinatorState.ONGOING or entry.commits != commit:
                marker, state = "commit" if commit else "abort", entry.state.value
                self.strays.append(
                    f"{partition}: a marker ({marker}) was written for {transactional_id}, whose state is {state}"
                )

    def end_offset(self, partition: TopicPartition) -> int:
        """Returns the offset after the last batch, for an observer and without a request."""
        return self._log(partition).end_offset

    def offsets(self, now_ms: int, partition: TopicPartition) -> Offsets:
        """Returns start, last stable offset and end (ListOffsets)."""
        log = self._lead(now_ms, partition)
        return Offsets(log.start_offset, log.stable_offset, log.end_offset)

    def offset_at(self, now_ms: int, partition: TopicPartition, at_ms: int, *, committed: bool) -> int:
        """Returns the offset of the first record that is not older, or NO_OFFSET."""
        found = self._lead(now_ms, partition).offset_at(at_ms, committed=committed)
        return NO_OFFSET if found is None else found

    def fetch(
        self, now_ms: int, partition: TopicPartition, offset: int, *, committed: bool, limit: int
    ) -> FetchedBatches:
        """Returns records for a read-committed or read-uncommitted reader."""
        return self._lead(now_ms, partition).read(offset, committed=committed, limit=limit)

    def headers(self, now_ms: int, partition: TopicPartition, offset: int) -> list[BatchHeader]:
        """Returns the headers of all batches from `offset` to the end."""
        return list(self._lead(now_ms, partition).headers(offset))

    # -- consumer groups -----------------------------------------------------------------------------------------------

    def mirror_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Stores a group's offsets, each with a text."""
        self._groups.setdefault(group, {}).update(offsets)

    def group_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Returns the offsets that were mirrored to a group."""
        return dict(self._groups.get(group, {}))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _enter(self, now_ms: int) -> None:
        """Begins a request to the coordinator. Raises RequestRefused while it is unavailable."""
        self._catch_up(now_ms)
        self._coordinator.expire(now_ms - self.id_lifetime_ms)
        until_ms, code = self._coordinator_away
        if now_ms < until_ms:
            raise RequestRefused(code)

    def _lead(self, now_ms: int, partition: TopicPartition) -> PartitionLog:
        """Begins a request to the partition's leader. Raises RequestRefused while there is none."""
        self._catch_up(now_ms)
        log = self._log(partition)
        if not self.placement.is_led(partition, now_ms):
            raise RequestRefused(Code.NOT_LEADER_OR_FOLLOWER)
        return log

    def _log(self, partition: TopicPartition) -> PartitionLog:
        topic = self._topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < topic.facts.partitions:
            raise RequestRefused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.logs[partition.partition]

    @staticmethod
    def _check_records(now_ms: int, settings: Mapping[str, str], records: Sequence[Record]) -> None:
        """Applies the topic's rules. One bad record makes the whole batch fail."""
        if sum(record.size_bytes for record in records) > int(settings["max.message.bytes"]):
            raise RequestRefused(Code.MESSAGE_TOO_LARGE)
        if settings.get("cleanup.policy") == "compact" and any(record.key is None for record in records):
            raise RequestRefused(Code.INVALID_RECORD)
        ahead_ms = settings.get("message.timestamp.after.max.ms")
        if ahead_ms is not None and any(record.timestamp_ms > now_ms + int(ahead_ms) for record in records):
            raise RequestRefused(Code.INVALID_TIMESTAMP)

    def _verify(
        self, log: PartitionLog, partition: TopicPartition, stamp: Stamp, transactional_id: TransactionalId
    ) -> None:
        """Verifies, for the first batch of a transaction in a partition, that the transaction is really open."""
        known = log.producers.get(stamp.producer_id)
        if known is not None and stamp.epoch < known.epoch:
            raise RequestRefused(Code.INVALID_PRODUCER_EPOCH)
        self._coordinator.check_writing(transactional_id, stamp.producer_id, stamp.epoch, partition)

    def _write_markers(self, now_ms: int, transactional_id: TransactionalId, entry: TransactionEntry) -> None:
        """Writes the markers of a decided transaction, at once if there is no delay."""
        self._plan(transactional_id, now_ms + self.marker_delay_ms, entry)
        self._catch_up(now_ms)

    def _plan(self, transactional_id: TransactionalId, due_ms: int, entry: TransactionEntry) -> None:
        self._open[transactional_id] = (due_ms, entry)
        self._due_ms = min(self._due_ms, due_ms)

    def _catch_up(self, now_ms: int) -> None:
        """Does everything that was due until now, in order."""
        while self._open and self._due_ms <= now_ms:
            due_ms, transactional_id = min((due, known) for known, (due, _) in self._open.items())
            self._due_ms = due_ms
            if due_ms > now_ms:
                return
            entry = self._open[transactional_id][1]
            if entry.state is CoordinatorState.ONGOING:
                self._coordinator.abort_fenced(entry, due_ms)
                self._open[transactional_id] = (due_ms + self.marker_delay_ms, entry)
            elif self._write_marker(entry, due_ms):
                self._open[transactional_id] = (due_ms + self.marker_delay_ms, entry)
            else:
                del self._open[transactional_id]

    def _write_marker(self, entry: TransactionEntry, now_ms: int) -> bool:
        """Writes the marker of the next partition. Returns whether more follow. A deleted topic needs none.

        Kafka treats a partition without a leader as deleted (ADR 15): the transaction stays open there forever.
        """
        partition = min(entry.partitions)
        topic = self._topics.get(partition.topic)
        if not self.placement.is_led(partition, now_ms):
            self._markers_lost += 1
        elif topic is not None and partition.partition < topic.facts.partitions:
            coordinator_epoch = self.placement.coordinator_epoch(now_ms)
            log = topic.logs[partition.partition]
            log.append_marker(entry.producer_id, entry.epoch, entry.commits, coordinator_epoch, now_ms)
        self._coordinator.marker_written(entry, partition, now_ms)
        return entry.preparing
