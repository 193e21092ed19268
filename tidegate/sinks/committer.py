"""Ends the transactions of completed checkpoints, on the driver. Normal operation and recovery use the same code.

It acts only with a `CommitPermit`, and only the journal creates permits. `outcome.py` explains how an end is decided.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.committable import Committable, WrittenRange
from tidegate.config.fields.counts import render_count
from tidegate.errors import PipelineStopped
from tidegate.ids import Attempt, CheckpointId, OperatorName, ProducerId, TransactionalId
from tidegate.kafka.errors import (
    BrokerUnavailable,
    KafkaRefused,
    TransactionGone,
    TransactionLost,
    TransactionUndecidable,
)
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription, TransactionListing
from tidegate.sinks.naming import derive_name
from tidegate.sinks.outcome import CommitOutcome, decide_from_answer, decide_from_markers
from tidegate.sinks.salvage import LostTransaction, Settlement

if TYPE_CHECKING:
    from tidegate.coordinator.permit import CommitPermit

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_S: Final = 30.0
MARKER_TIMEOUT_S: Final = 10.0
"""How long markers may lag behind the coordinator's decision before an attempt to commit ends without an answer.

After that, the daemon looks for lost markers.
"""
MARKER_PAUSE_S: Final = 0.05
MARKER_POLL_S: Final = 10.0
"""Timeout per piece of a log in which a marker is searched for.

A slow answer is not a missing marker, and many records of other writers may lie between the records and the marker.
"""
REPORTED_PARTITIONS: Final = 20
FIRST_ATTEMPT: Final = Attempt(0)
REPORTED_IDS: Final = 4

_TROUBLE: Final = frozenset({CommitOutcome.LOST, CommitOutcome.GONE, CommitOutcome.UNDECIDABLE})

_Ended = tuple[Committable, EndAnswer | None, CommitOutcome, list[Marker]]
"""A transaction, the coordinator's answer, the outcome, and the markers that were read. Without an answer, the broker
was not asked, since an older transaction of the same sink is not committed.
"""


class CommitClient(Protocol):
    """The part of TransactionClient used here."""

    def end_transactions(self, committables: Sequence[Committable], timeout_s: float) -> list[EndAnswer]:
        """Commits transactions. Returns an answer for each, in order."""

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
        """Returns how a transaction ended in one partition. `timeout_s` applies to each piece of the log."""

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        """Returns what the coordinator knows of a transactional id; None if it does not know the id."""

    def list_transactions(self, prefix: str, timeout_s: float) -> list[TransactionListing]:
        """Returns the transactions of all ids that begin with the prefix."""

    def fence(self, transactional_id: TransactionalId, timeout_s: float) -> ProducerId:
        """Aborts an open transaction and fences its producer. Returns the newest producer of the id."""


class Committer:
    """The committer of a pipeline's transactions, through a client; keeps no state between calls.

    `accept_gone` is the checkpoint for which the user has decided that listed transactions without any trace left in
    Kafka count as committed. It is a number because a supervisor repeats the option at every start. `in_cluster` names
    the cluster in a message; empty if it has no name.
    """

    def __init__(
        self,
        client: CommitClient,
        timeout_s: float = COMMIT_TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
        *,
        accept_gone: CheckpointId | None = None,
        in_cluster: str = "",
    ) -> None:
        self._client = client
        self._in_cluster = in_cluster
        self._clock = clock
        self._timeout_s = timeout_s
        self._accept_gone = accept_gone

    def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        """Ends every transaction of the permit; returns outcomes in its order.

        STILL_OPEN means that the broker gave no final answer in time: call again with the same permit. Raises
        TransactionLost, TransactionGone or TransactionUndecidable for the first transaction that cannot be committed,
        after trying all others except newer ones of the same sink.
        """
        outcomes = []
        trouble: PipelineStopped | None = None
        for committable, answer, outcome, markers in self._end_all(permit):
            outcomes.append(outcome)
            if answer is not None and outcome in _TROUBLE and trouble is None:
                trouble = self._explain(permit, committable, answer, outcome, markers)
        if trouble is not None:
            raise trouble
        return outcomes

    def settle(self, permit: CommitPermit, *, hold: bool = True) -> Settlement:
        """Works like `commit`, but returns lost transactions. Raises TransactionGone, TransactionUndecidable.

        Without `hold`, newer transactions of their sinks are also ended. Call it that way only after `abort_held`.
        """
        outcomes: list[CommitOutcome] = []
        committed: list[Committable] = []
        lost: list[LostTransaction] = []
        held: list[Committable] = []
        for committable, answer, outcome, markers in self._end_all(permit, hold):
            outcomes.append(outcome)
            if answer is None:
                held.append(committable)
            elif outcome is CommitOutcome.ACCEPTED:
                continue  # nothing is left of it that a copy of an older one could follow
            elif outcome.committed:
                committed.append(committable)
            elif outcome is CommitOutcome.LOST:
                lost.append(LostTransaction(committable, self._tell_loss(committable, answer)))
            elif outcome in _TROUBLE:
                raise self._explain(permit, committable, answer, outcome, markers)
        return Settlement(tuple(outcomes), tuple(committed), tuple(lost), tuple(held))

    def abort_held(self, settlement: Settlement) -> None:
        """Aborts everything held back behind a lost transaction, unless it was committed earlier.

        Call this only when all their records are known to be in the log: they are salvaged together, in order.
        """
        for committable in settlement.held:
            if not self._is_committed(committable):  # fencing would make its coordinator forget the commit
                self._client.fence(committable.transactional_id, timeout_s=self._timeout_s)

    def fence_leftovers(
        self,
        pipeline: str,
        keep: Collection[TransactionalId],
        current: Attempt,
        journal: str,
        others: Collection[str] | None = None,
        since: Attempt = FIRST_ATTEMPT,
    ) -> list[TransactionalId]:
        """Aborts every open transaction of the journal's attempts `since` .. `current` - 1, except `keep`.

        Returns the fenced ids. Attempts of other journals count as older: those of all journals, or only those in
        `others`. `keep` are the ids of committables that are not known to have ended. A zombie can open transactions on
        its own old ids; it can never commit them, but they would hold readers back.
        """
        fenced: dict[bool, list[TransactionalId]] = {True: [], False: []}
        for listing in self._client.list_transactions(f"{pipeline}.", timeout_s=self._timeout_s):
            name = derive_name(listing.transactional_id)
            if name is None or name.pipeline != pipeline or listing.state is not CoordinatorState.ONGOING:
                continue
            own = name.journal == journal
            older = since <= name.attempt < current if own else others is None or name.journal in others
            if older and listing.transactional_id not in keep:
                self._client.fence(listing.transactional_id, timeout_s=self._timeout_s)
                fenced[own].append(listing.transactional_id)
        for own, ids in fenced.items():
            if ids:
                more = f" and {len(ids) - REPORTED_IDS} more" if len(ids) > REPORTED_IDS else ""
                whose = "attempts that have ended" if own else f"pipeline {pipeline} from another checkpoint directory"
                logger.info(
                    "aborted %s%s of %s: %s%s",
                    render_count(len(ids), "open transaction"),
                    self._in_cluster,
                    whose,
                    ", ".join(ids[:REPORTED_IDS]),
                    more,
                )
        return [*fenced[True], *fenced[False]]

    def _is_committed(self, committable: Committable) -> bool:
        description = self._client.describe(committable.transactional_id, timeout_s=self._timeout_s)
        if description is None or description.state not in (
            CoordinatorState.PREPARE_COMMIT,
            CoordinatorState.COMPLETE_COMMIT,
        ):
            return False
        return description.producer == committable.producer

    def _end_all(self, permit: CommitPermit, hold: bool = True) -> list[_Ended]:
        """Ends everything and decides the outcomes from the answers, or else from the markers, in the permit's order.

        Older checkpoints come first: while a transaction of a sink is not committed, nothing newer of that sink becomes
        visible. Only the coordinators' answers count against the timeout; otherwise a long search for markers would
        leave later transactions unasked.
        """
        left_s = self._timeout_s
        markers_by: float | None = None
        ended: dict[int, _Ended] = {}
        behind: set[OperatorName] = set()
        for checkpoint in sorted({committable.checkpoint for committable in permit.committables}):
            same = [(i, one) for i, one in enumerate(permit.committables) if one.checkpoint == checkpoint]
            ended.update({i: (one, None, CommitOutcome.STILL_OPEN, []) for i, one in same if one.sink in behind})
            now = [(i, one) for i, one in same if one.sink not in behind]
            begun = self._clock.monotonic()
            answers = self._client.end_transactions([one for _, one in now], timeout_s=left_s)
            left_s = max(0.0, left_s - (self._clock.monotonic() - begun))
            if markers_by is None:
                markers_by = self._clock.monotonic() + MARKER_TIMEOUT_S
            for (i, one), answer in zip(now, answers, strict=True):
                ended[i] = (one, answer, *self._decide(permit, one, answer, markers_by))
                if hold and not ended[i][2].committed:
                    behind.add(one.sink)
        return [ended[i] for i in range(len(permit.committables))]

    def _decide(
        self, permit: CommitPermit, committable: Committable, answer: EndAnswer, deadline: float
    ) -> tuple[CommitOutcome, list[Marker]]:
        outcome = decide_from_answer(answer)
        if outcome is not None:
            return outcome, []
        try:
            outcome, markers = self._read_markers(committable, deadline)
        except BrokerUnavailable as error:
            logger.warning("transaction %s: %s", committable.transactional_id, error.message)
            return CommitOutcome.STILL_OPEN, []
        if outcome is CommitOutcome.STILL_OPEN and answer is EndAnswer.NOT_AUTHORIZED:
            raise KafkaRefused(
                f"this user may not end transaction {committable.transactional_id} of checkpoint "
                f"{committable.checkpoint}; grant WRITE to it on the transactional ids that begin with the pipeline's "
                f"name and a dot"
            )
        if outcome is CommitOutcome.GONE and self._accept_gone == permit.checkpoint:
            logger.warning("counted as committed, as --accept-gone %d says: %s", permit.checkpoint, _place(committable))
            return CommitOutcome.ACCEPTED, markers
        return outcome, markers

    def _read_markers(self, committable: Committable, deadline: float) -> tuple[CommitOutcome, list[Marker]]:
        """Reads the markers of a refused transaction until one decides; returns STILL_OPEN if none arrives in time.

        Reads them at least once.
        """
        while True:
            markers = [
                self._client.outcome(part, committable.producer, timeout_s=MARKER_POLL_S)
                for part in committable.written
            ]
            outcome = decide_from_markers(markers)
            if outcome is not CommitOutcome.STILL_OPEN or self._clock.monotonic() >= deadline:
                return outcome, markers
            self._clock.sleep(MARKER_PAUSE_S)

    def _explain(
        self,
        permit: CommitPermit,
        committable: Committable,
        answer: EndAnswer,
        outcome: CommitOutcome,
        markers: Sequence[Marker],
    ) -> TransactionLost | TransactionGone | TransactionUndecidable:
        """Builds the error with everything that the operator on call needs."""
        fields = {
            "sink": committable.sink,
            "checkpoint": committable.checkpoint,
            "subtask": committable.subtask,
            "transactional_id": committable.transactional_id,
            "records": committable.records,
        }
        if outcome is CommitOutcome.LOST:
            return TransactionLost(self._tell_loss(committable, answer), **fields)
        if outcome is CommitOutcome.GONE:
            return TransactionGone(
                f"Kafka has no trace left of a transaction of a completed checkpoint, so it is unknown whether it "
                f"was committed: {_place(committable)}. {self._tell_answer(committable, answer)}. Retention or a "
                f"deletion of records has removed its records and markers. If its readers received them, or can do "
                f"without, start with --accept-gone {permit.checkpoint}, which counts the missing part of the "
                f"transactions that checkpoint {permit.checkpoint} lists as committed, and nothing later. "
                f"Otherwise restore a savepoint into a new `checkpoints.directory` (--restore PATH --repeat-output)",
                **fields,
            )
        found = ", ".join(
            f"{part.partition}: {marker.value}" for part, marker in zip(committable.written, markers, strict=False)
        )
        return TransactionUndecidable(
            f"a transaction of a completed checkpoint was committed in one partition and aborted in another: "
            f"{_place(committable)}. {self._tell_answer(committable, answer)}; markers in the partitions: {found}. "
            f"Either Kafka has lost a marker, or a marker was written by other means. Compare the output at these "
            f"offsets with the expected output before you start the pipeline again.",
            **fields,
        )

    def _tell_loss(self, committable: Committable, answer: EndAnswer) -> str:
        return (
            f"a transaction of a completed checkpoint was aborted by the broker, and its records are missing from "
            f"the output: {_place(committable)}. {_why_aborted(committable)} "
            f"{self._tell_answer(committable, answer)}. The aborted records stay in the log until retention or "
            f"compaction removes them; read them with isolation.level=read_uncommitted at these offsets. Raise "
            f"checkpoints.transaction_timeout above the longest time this pipeline may be down."
        )

    def _tell_answer(self, committable: Committable, answer: EndAnswer) -> str:
        description = self._client.describe(committable.transactional_id, timeout_s=self._timeout_s)
        state = "unknown" if description is None else f"{description.state.value} epoch {description.producer.epoch}"
        return f"The coordinator answered '{answer.value}' (state {state}, ours was epoch {committable.producer.epoch})"


def _place(committable: Committable) -> str:
    return (
        f"sink {committable.sink}, checkpoint {committable.checkpoint}, subtask {committable.subtask}, "
        f"{committable.records} records in {_ranges(committable)}"
    )


def _ranges(committable: Committable) -> str:
    parts = [f"{w.partition} offsets {w.start_offset}..{w.end_offset - 1}" for w in committable.written]
    more = len(parts) - REPORTED_PARTITIONS
    return ", ".join(parts[:REPORTED_PARTITIONS]) + (f" and {more} more partitions" if more > 0 else "")


def _why_aborted(committable: Committable) -> str:
    opened = datetime.fromtimestamp(committable.opened_at_ms / 1000, UTC)
    limit = datetime.fromtimestamp((committable.opened_at_ms + committable.timeout_ms) / 1000, UTC)
    return (
        f"It was opened at {opened:%Y-%m-%dT%H:%M:%SZ} with a timeout of {committable.timeout_ms / 1000:g} s, so "
        f"the broker times it out from {limit:%Y-%m-%dT%H:%M:%SZ} on. If that time has not come yet, another "
        f"producer has initialised its transactional id: does another pipeline of the same name run?"
    )
