"""The daemon's own Kafka requests, off the event loop: facts, commits, fencing, lag, mirrored offsets.

Commits have a client and a thread of their own, so that nothing else ever delays them.
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
from tidegate.errors import REPLACED_TOPIC, PipelineStopped, TidegateError
from tidegate.ids import Attempt, CheckpointId, OperatorName, TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import TopicFacts
from tidegate.kafka.properties import derive_login, derive_servers
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sinks.committer import FIRST_ATTEMPT, Committer
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import ResolveReport
from tidegate.sinks.outcome import CommitOutcome, abort_all, find_transaction_statuses
from tidegate.sinks.salvage import SalvageOrder, Settlement
from tidegate.sources.start_offsets import read_beginning, refuse_unreadable

if TYPE_CHECKING:
    from tidegate.sinks.salvager import Salvager

logger = logging.getLogger(__name__)

T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 30.0
AFTERMATH_S: Final = 60.0
"""How long after an outage attempts may still fail because of it: requests from that time run into their timeouts."""
SOON_S: Final = 1.0
"""How long to wait for the general thread, because requests about a partition without a leader take 30 s each."""


class TopicMissing(PipelineStopped):
    """A topic of the pipeline does not exist."""

    code = "topic-missing"
    exit_code = 2


class KafkaEdge:
    """One cluster, by three clients with a thread each: for transactions, for probing, and for everything else.

    `name` is that of the cluster in messages; empty if the file defines no other clusters.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        tools: KafkaTools = KAFKA_TOOLS,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        name: str = "",
    ) -> None:
        self._name = name
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
        """Passed to `Committer`."""
        self._answering = asyncio.Event()
        self._answering.set()
        self._back_at: float | None = None
        """When brokers responded again, in monotonic seconds; None if there was no outage or it continues."""

    @property
    def bootstrap(self) -> str:
        """The cluster's address."""
        return derive_servers(self._kafka)

    @property
    def place(self) -> str:
        """The cluster's address for messages, with its name if it has one."""
        return f"{self.bootstrap} (cluster {self._name})" if self._name else self.bootstrap

    @property
    def suffix(self) -> str:
        """Names the cluster behind a topic in messages, if it has a name."""
        return f" in {self._name}" if self._name else ""

    @property
    def unavailable(self) -> bool:
        """True while no broker responds and that was reported."""
        return not self._answering.is_set()

    def note(self, *, answering: bool) -> None:
        """Records whether a broker responds."""
        if not answering:
            self._answering.clear()
            self._back_at = None
        elif self.unavailable:
            self._answering.set()
            self._back_at = self._tools.clock.monotonic()

    async def wait_answering(self) -> None:
        """Waits until brokers respond; returns at once unless `unavailable`."""
        await self._answering.wait()

    @property
    def explains_failures(self) -> bool:
        """True if brokers do not respond, or did not until recently, so that this explains why an attempt fails."""
        return self.unavailable or (
            self._back_at is not None and self._tools.clock.monotonic() - self._back_at < AFTERMATH_S
        )

    @property
    def interruptions(self) -> int:
        """A counter that grows with every outage and reconnection of either client."""
        return sum(client.interruptions for client in (self._commit_client, self._other_client) if client is not None)

    async def open(self) -> None:
        """Connects both clients. Raises BrokerUnavailable."""

        def open_other() -> None:
            self._other_client = self._connect()
            self._require_open(self._other_client)

        def open_commit() -> None:
            self._commit_client = self._connect()
            self._require_open(self._commit_client)

        await self._call(self._other_thread, open_other)
        await self._call(self._commit_thread, open_commit)

    async def cluster_facts(self, topics: Collection[str]) -> tuple[str, dict[str, TopicFacts]]:
        """Returns the cluster id and the topics' ids and partition counts.

        Raises TopicMissing with all missing topics.
        """
        cluster, found = await self.cluster_id(), await self.topic_facts(topics)
        missing = sorted(set(topics) - found.keys())
        if missing:
            error = TopicMissing(
                f"topic {', '.join(missing)} does not exist on {self.bootstrap}. If it was deleted, a new topic of "
                f"this name does not continue it. {REPLACED_TOPIC}. If the pipeline has never used it, create it (the "
                "pipeline never creates topics), or correct the name",
                topics=missing,
            )
            self._place(error)
            raise error
        return cluster, found

    async def cluster_id(self) -> str:
        """Returns Kafka's id of the cluster."""
        return await self._ask(lambda client: client.cluster_id())

    async def topic_facts(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        """Returns the facts of those topics that exist."""
        return await self._ask(lambda client: client.topics(topics))

    async def all_topics(self) -> dict[str, TopicFacts]:
        """Returns the facts of every topic that this user may see."""
        return await self._ask(lambda client: client.topics(None))

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        """Commits the transactions of a permit with `Committer.commit`."""
        return await self._end(lambda client: self._committer(client).commit(permit))

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        """Settles the transactions of a permit with `Committer.settle`."""
        return await self._end(lambda client: self._committer(client).settle(permit, hold=hold))

    async def find_transaction_statuses(self, committables: Sequence[Committable]) -> dict[Key, TransactionStatus]:
        """Returns the status of each transaction. Raises BrokerUnavailable."""
        return await self._end(lambda client: find_transaction_statuses(client, committables))

    async def abort(self, committables: Sequence[Committable]) -> None:
        """Aborts transactions with `abort_all`."""
        await self._end(lambda client: abort_all(client, committables))

    async def abort_held(self, order: SalvageOrder, settlement: Settlement) -> None:
        """Aborts held transactions with `Committer.abort_held`, if every record of `order` is in the log.

        Raises TransactionLost.
        """

        def work(client: TransactionClient) -> None:
            self._salvager(client, {}, order).check()
            self._committer(client).abort_held(settlement)

        await self._end(work)

    async def salvage(
        self, order: SalvageOrder, sinks: Mapping[OperatorName, Mapping[str, str]]
    ) -> tuple[Committable, ...]:
        """Salvages lost transactions with `Salvager.prepare`; `sinks` are the properties of each sink's producers."""
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
        running: bool = False,
    ) -> list[TransactionalId]:
        """Fences leftover transactions with `Committer.fence_leftovers`.

        If the general thread does not get to it soon, the commit thread does it, except while an attempt is `running`.
        """

        def fence(client: TransactionClient) -> list[TransactionalId]:
            return self._committer(client).fence_leftovers(pipeline, keep, current, journal, others, since)

        asking = [asyncio.ensure_future(self._ask(fence))]
        try:
            done, _ = await asyncio.wait(asking, timeout=None if running else SOON_S)
            if not done:
                asking.append(asyncio.ensure_future(self._end(fence)))
                done, _ = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for one in asking:
                one.cancel()

    async def resolve(self, pipeline: str, topics: Collection[str]) -> ResolveReport:
        """Resolves hanging transactions; the daemon uses one HangingTransactionResolver for all its searches."""

        def look(client: TransactionClient) -> ResolveReport:
            if self._resolver is None:
                self._resolver = HangingTransactionResolver(client, pipeline, self._tools.clock)
            return self._resolver.resolve(topics)

        return await self._ask(look)

    async def stable_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the last stable offsets of source partitions, for the lag."""
        return await self._ask(lambda client: client.stable_offsets(partitions))

    async def first_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the first offsets of source partitions. Raises BrokerUnavailable, KafkaRefused."""
        return await self._ask(lambda client: client.first_offsets(partitions))

    async def read_beginnings(
        self, wanted: Sequence[tuple[SourceOperator, UnassignedSource]], now: dt.datetime
    ) -> list[SourcePositions]:
        """Looks up starting offsets, as in `sources/start_offsets.py`.

        If a source has a user of its own, only its slots can find out what that user may read. Raises SourceFailed,
        BrokerUnavailable, KafkaRefused.
        """
        login = derive_login(self._kafka)

        def work(client: TransactionClient) -> list[SourcePositions]:
            for source, one in wanted:
                if derive_login(source.kafka) == login:
                    refuse_unreadable(client, source, one)
            return [read_beginning(client, source, one, now) for source, one in wanted]

        return await self._ask(work)

    async def read_known(self, pipeline: str) -> Known:
        """Reads what Kafka knows about the pipeline, as in `ownership.py`."""
        return await self._ask(lambda client: read_known(client, pipeline))

    async def mirrored_texts(self, group: str) -> dict[TopicPartition, str]:
        """Reads the metadata of the offsets of a consumer group. Raises BrokerUnavailable, KafkaRefused."""
        return await self._ask(lambda client: client.mirrored_texts(group))

    async def mirror_offsets(self, group: str, offsets: Mapping[TopicPartition, int], text: str) -> None:
        """Writes positions to a consumer group for existing lag tools, each with `text` as its metadata.

        Raises BrokerUnavailable, KafkaRefused.
        """
        await self._ask(lambda client: client.mirror_offsets(group, offsets, text))

    async def ask_for_life(self, timeout_s: float) -> None:
        """Returns when a broker has responded. Raises BrokerUnavailable, KafkaRefused."""

        def ask() -> None:
            if self._watch_client is None:
                self._watch_client = self._connect()  # a new client's first response takes longer, especially with TLS
                self._require_open(self._watch_client)
            try:
                self._watch_client.cluster_id(timeout_s)
            except BrokerUnavailable as error:
                self._tools.explain(self._kafka, error)
                raise

        await self._on(self._watch_thread, ask)

    async def close(self) -> None:
        """Closes all clients and waits for calls in progress.

        A thread that is still connecting closes its own client.
        """
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
        """Closes a client that was created too late for `close`.

        It runs after the client is stored, so one of the two sees it.
        """
        if self._closed:
            client.close()
            raise BrokerUnavailable("connecting: the clients were closed meanwhile")

    def _connect(self) -> TransactionClient:
        return self._tools.connect(self._kafka, self._connect_timeout_s)

    def _committer(self, client: TransactionClient) -> Committer:
        return Committer(client, clock=self._tools.clock, accept_gone=self.accept_gone, in_cluster=self.suffix)

    def _salvager(
        self, client: TransactionClient, sinks: Mapping[OperatorName, Mapping[str, str]], order: SalvageOrder
    ) -> Salvager:
        from tidegate.sinks.salvager import Salvager  # imports librdkafka

        return Salvager(client, self._kafka, sinks, order, self._tools, accept_gone=self.accept_gone)

    async def _end(self, call: Callable[[TransactionClient], T]) -> T:
        """Runs a call that ends transactions or reads whether they have ended."""
        client = self._commit_client
        assert client is not None
        return await self._call(self._commit_thread, lambda: call(client))

    async def _ask(self, call: Callable[[TransactionClient], T]) -> T:
        """Runs any other call."""
        client = self._other_client
        assert client is not None
        return await self._call(self._other_thread, lambda: call(client))

    async def _call(self, thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        """Makes a call whose errors name the cluster."""
        try:
            return await self._on(thread, call)
        except TidegateError as error:
            self._place(error)
            raise

    def _place(self, error: TidegateError) -> None:
        """Names the cluster in an error, if it has a name."""
        if self._name and "cluster" not in error.fields:
            error.fields["cluster"] = self._name
            error.message = f"cluster {self._name}: {error.message}"
            error.args = (error.message,)

    @staticmethod
    async def _on(thread: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, call)
