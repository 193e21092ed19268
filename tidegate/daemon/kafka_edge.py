"""The daemon's own conversations with Kafka, off the event loop: facts, commits, fencing, lag, mirrored offsets.

Commits have a client and a thread of their own, so that nothing else ever waits in front of them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.committable import Committable
from tidegate.coordinator.ledger import Key
from tidegate.coordinator.ownership import Known
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.ownership import read_known
from tidegate.errors import PipelineStopped
from tidegate.ids import Attempt, CheckpointId, OperatorName, TopicPartition, TransactionalId
from tidegate.kafka.client_properties import derive_login, derive_servers
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import TopicFacts
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sinks.committer import FIRST_ATTEMPT, Committer
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import ResolveReport
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import SalvageOrder, Settlement
from tidegate.sinks.transaction_status import abort_all, find_transaction_statuses
from tidegate.sources.start_offsets import read_beginning, refuse_unreadable

if TYPE_CHECKING:
    from tidegate.sinks.salvager import Salvager

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 30.0
AFTERMATH_S: Final = 60.0
"""So long after an outage attempts fail because of it: requests of then run into their time limits."""
SOON_S: Final = 1.0
"""Questions about a partition without a leader take 30 s each."""


class TopicMissing(PipelineStopped):
    """A topic of the pipeline does not exist."""

    code = "topic-missing"
    exit_code = 2


class KafkaEdge:
    """Three clients, three threads: `commit` things, all the rest, and the question whether anybody answers."""

    def __init__(
        self,
        kafka: Mapping[str, str],
        tools: KafkaTools = KAFKA_TOOLS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._kafka = dict(kafka)
        self._connect_timeout_s = connect_timeout_s
        self._tools = tools
        self._commit_thread = ThreadPoolExecutor(1, "commit")
        self._other_thread = ThreadPoolExecutor(1, "kafka")
        self._watch_thread = ThreadPoolExecutor(1, "watch")
        self._commit_client: TransactionClient | None = None
        self._other_client: TransactionClient | None = None
        self._watch_client: TransactionClient | None = None
        self._closed = False
        self._resolver: HangingTransactionResolver | None = None
        self.accept_gone: CheckpointId | None = None
        """See Committer."""
        self._answering = asyncio.Event()
        self._answering.set()
        self._back_at: float | None = None
        """When they answered again, monotonic seconds; None: they have answered all the time, or do not."""

    @property
    def bootstrap(self) -> str:
        """The cluster's address, for people."""
        return derive_servers(self._kafka)

    @property
    def away(self) -> bool:
        """No broker answers, and that was reported."""
        return not self._answering.is_set()

    def note(self, *, answering: bool) -> None:
        """Whether a broker answers now."""
        if not answering:
            self._answering.clear()
            self._back_at = None
        elif self.away:
            self._answering.set()
            self._back_at = self._tools.clock.monotonic()

    async def wait_answering(self) -> None:
        """Returns when brokers answer: at once unless `away`."""
        await self._answering.wait()

    @property
    def explains_failures(self) -> bool:
        """Brokers do not answer, or did not a moment ago: that is why an attempt fails now."""
        return self.away or (self._back_at is not None and self._tools.clock.monotonic() - self._back_at < AFTERMATH_S)

    @property
    def interruptions(self) -> int:
        """Grows with every outage and reconnection of either client."""
        return sum(client.interruptions for client in (self._commit_client, self._other_client) if client is not None)

    async def open(self) -> None:
        """Connect both clients. Raises BrokerUnavailable."""

        def open_other() -> None:
            self._other_client = self._connect()
            self._require_open(self._other_client)

        def open_commit() -> None:
            self._commit_client = self._connect()
            self._require_open(self._commit_client)

        await self._on(self._other_thread, open_other)
        await self._on(self._commit_thread, open_commit)

    async def cluster_facts(self, topics: Collection[str]) -> tuple[str, dict[str, TopicFacts]]:
        """Cluster id and the topics' ids and partition counts. Raises TopicMissing with all that are missing."""
        cluster = await self._ask(lambda client: client.cluster_id())
        found = await self.topic_facts(topics)
        missing = sorted(set(topics) - found.keys())
        if missing:
            raise TopicMissing(
                f"topic {', '.join(missing)} does not exist on {self.bootstrap}; create it (the "
                f"pipeline never creates topics), or correct the name",
                topics=missing,
            )
        return cluster, found

    async def topic_facts(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        """Those topics that exist."""
        return await self._ask(lambda client: client.topics(topics))

    async def all_topics(self) -> dict[str, TopicFacts]:
        """Every topic that this user may see."""
        return await self._ask(lambda client: client.topics(None))

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        """See Committer.commit."""
        return await self._end(lambda client: self._committer(client).commit(permit))

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        """See Committer.settle."""
        return await self._end(lambda client: self._committer(client).settle(permit, hold=hold))

    async def find_transaction_statuses(self, committables: Sequence[Committable]) -> dict[Key, TransactionStatus]:
        """See sinks/transaction_status.py. Raises BrokerUnavailable."""
        return await self._end(lambda client: find_transaction_statuses(client, committables))

    async def abort(self, committables: Sequence[Committable]) -> None:
        """See sinks/transaction_status.py."""
        await self._end(lambda client: abort_all(client, committables))

    async def abort_held(self, order: SalvageOrder, settlement: Settlement) -> None:
        """See Committer.abort_held; only when every record of `order` is in the log. Raises TransactionLost."""

        def work(client: TransactionClient) -> None:
            self._salvager(client, {}, order).check()
            self._committer(client).abort_held(settlement)

        await self._end(work)

    async def salvage(
        self, order: SalvageOrder, sinks: Mapping[OperatorName, Mapping[str, str]]
    ) -> tuple[Committable, ...]:
        """See Salvager.prepare; `sinks` are the properties of each sink's producers."""
        return await self._end(lambda client: self._salvager(client, sinks, order).prepare())

    async def fence_leftovers(
        self,
        pipeline: str,
        keep: Collection[TransactionalId],
        current: Attempt,
        journal: str,
        others: Collection[str] | None = None,
        since: Attempt = FIRST_ATTEMPT,
        *,
        beside: bool = False,
    ) -> list[TransactionalId]:
        """See Committer.fence_leftovers. Where the thread of everything else does not come to it soon, that of commits
        does it, but not `beside` an attempt that runs.
        """

        def fence(client: TransactionClient) -> list[TransactionalId]:
            return self._committer(client).fence_leftovers(pipeline, keep, current, journal, others, since)

        asking = [asyncio.ensure_future(self._ask(fence))]
        try:
            done, _ = await asyncio.wait(asking, timeout=None if beside else SOON_S)
            if not done:
                asking.append(asyncio.ensure_future(self._end(fence)))
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for one in asking:
                one.cancel()

    async def resolve(self, pipeline: str, topics: Collection[str]) -> ResolveReport:
        """See HangingTransactionResolver.mend; one mender for all looks of the daemon."""

        def look(client: TransactionClient) -> ResolveReport:
            if self._resolver is None:
                self._resolver = HangingTransactionResolver(client, pipeline, self._tools.clock)
            return self._resolver.resolve(topics)

        return await self._ask(look)

    async def stable_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Last stable offsets of source partitions, for the lag."""
        return await self._ask(lambda client: client.stable_offsets(partitions))

    async def first_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs of source partitions begin. Raises BrokerUnavailable, KafkaRefused."""
        return await self._ask(lambda client: client.first_offsets(partitions))

    async def read_beginnings(
        self, wanted: Sequence[tuple[SourceOperator, UnassignedSource]], now: dt.datetime
    ) -> list[SourcePositions]:
        """See sources/start_offsets.py. Raises SourceFailed, BrokerUnavailable, KafkaRefused.

        What a user of a source's own may read, only its slots find out.
        """
        login = derive_login(self._kafka)

        def work(client: TransactionClient) -> list[SourcePositions]:
            for source, one in wanted:
                if derive_login(source.kafka) == login:
                    refuse_unreadable(client, source, one)
            return [read_beginning(client, source, one, now) for source, one in wanted]

        return await self._ask(work)

    async def read_known(self, pipeline: str) -> Known:
        """See owning.py."""
        return await self._ask(lambda client: read_known(client, pipeline))

    async def mirrored_texts(self, group: str) -> dict[TopicPartition, str]:
        """What stands beside the offsets of a consumer group. Raises BrokerUnavailable, KafkaRefused."""
        return await self._ask(lambda client: client.mirrored_texts(group))

    async def mirror_offsets(self, group: str, offsets: Mapping[TopicPartition, int], text: str) -> None:
        """Write positions to a consumer group, for the lag tools that people already have, each with `text` beside it.

        Raises BrokerUnavailable, KafkaRefused.
        """
        await self._ask(lambda client: client.mirror_offsets(group, offsets, text))

    async def ask_for_life(self, timeout_s: float) -> None:
        """Returns when a broker has answered. Raises BrokerUnavailable, KafkaRefused."""

        def ask() -> None:
            if self._watch_client is None:
                self._watch_client = self._connect()  # a new client's first answer takes longer, with TLS above all
                self._require_open(self._watch_client)
            try:
                self._watch_client.cluster_id(timeout_s)
            except BrokerUnavailable as silence:
                self._tools.explain(self._kafka, silence)
                raise

        await self._on(self._watch_thread, ask)

    async def close(self) -> None:
        """Close all clients; waits for the calls under way. The thread that still connects closes its client."""
        self._closed = True
        for thread, client in (
            (self._watch_thread, self._watch_client),
            (self._commit_thread, self._commit_client),
            (self._other_thread, self._other_client),
        ):
            if client is not None:
                await self._on(thread, client.close)
            thread.shutdown(wait=False, cancel_futures=True)

    def _require_open(self, client: TransactionClient) -> None:
        """After the new client is noted: so either `close` sees it, or it is seen here that nobody will."""
        if self._closed:
            client.close()
            raise BrokerUnavailable("connecting: the clients were closed meanwhile")

    def _connect(self) -> TransactionClient:
        return self._tools.connect(self._kafka, self._connect_timeout_s)

    def _committer(self, client: TransactionClient) -> Committer:
        return Committer(client, clock=self._tools.clock, accept_gone=self.accept_gone)

    def _salvager(
        self, client: TransactionClient, sinks: Mapping[OperatorName, Mapping[str, str]], order: SalvageOrder
    ) -> Salvager:
        from tidegate.sinks.salvager import Salvager  # brings librdkafka

        return Salvager(client, self._kafka, sinks, order, self._tools, accept_gone=self.accept_gone)

    async def _end(self, call: Callable[[TransactionClient], T]) -> T:
        """What ends transactions, or looks whether they are ended."""
        client = self._commit_client
        assert client is not None
        return await self._on(self._commit_thread, lambda: call(client))

    async def _ask(self, call: Callable[[TransactionClient], T]) -> T:
        """Everything else."""
        client = self._other_client
        assert client is not None
        return await self._on(self._other_thread, lambda: call(client))

    @staticmethod
    async def _on(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
