"""Reads and writes the ownership record of a pipeline in Kafka. The decisions are in `coordinator/ownership.py`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidegate.coordinator.ownership import Known, decide_still_owner, derive_newest_record, derive_record, encode_record
from tidegate.ids import ClusterName, TopicPartition
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.facts import CoordinatorState
from tidegate.sinks.naming import derive_name

if TYPE_CHECKING:
    from tidegate.daemon.services import Services
    from tidegate.kafka.transactions import TransactionClient

logger = logging.getLogger(__name__)

CLAIM_S: Final = 1.0
"""Another daemon takes less than this between reading the old record and writing its own."""


def read_known(client: TransactionClient, pipeline: str) -> Known:
    """Reads what Kafka knows under the pipeline's name. Raises BrokerUnavailable."""
    listings = [(one, derive_name(one.transactional_id)) for one in client.list_transactions(f"{pipeline}.")]
    ours = [(one, name) for one, name in listings if name is not None and name.pipeline == pipeline]
    try:
        texts = client.mirrored_texts(pipeline)
    except KafkaRefused:
        texts = {}
    return Known(
        record=derive_newest_record(texts.values()),
        mirrored=bool(texts),
        ids=tuple(sorted(one.transactional_id for one, _ in ours)),
        open_journals=tuple(sorted({name.journal for one, name in ours if one.state is CoordinatorState.ONGOING})),
        journals=tuple(sorted({name.journal for _, name in ours})),
    )


class Ownership:
    """The ownership record of one daemon.

    It is written when an attempt begins and with every mirroring, and read before each.
    """

    def __init__(self, pipeline: str, services: Services) -> None:
        self._pipeline = pipeline
        self._services = services
        self._told: set[ClusterName] = set()

    async def claim(self, positions: Mapping[ClusterName, Mapping[TopicPartition, int]], *, patiently: bool) -> None:
        """Writes the record after a takeover, before any transaction is ended or opened.

        Daemons with two copies of one directory may take over at the same time, each in its own journal: the record
        that is written last wins. With `patiently`, the record is checked again after CLAIM_S, by which time the other
        daemon, which has read the old record, has written its own. Raises Superseded, BrokerUnavailable.
        """
        await self.record_all(positions)
        if patiently:
            await asyncio.sleep(CLAIM_S)
        await self.record_all({cluster: {} for cluster in positions})

    async def record_all(self, positions: Mapping[ClusterName, Mapping[TopicPartition, int]]) -> None:
        """Mirrors positions in several clusters at the same time. Raises what `record` raises."""
        await self._services.kafka.each(lambda name, _: self.record(name, positions[name]), positions)

    async def record(self, cluster: ClusterName, positions: Mapping[TopicPartition, int]) -> None:
        """Mirrors positions in a cluster together with the record, unless another daemon now owns the pipeline.

        Raises Superseded, BrokerUnavailable. Without permission for the group, it logs the consequences once.
        """
        services = self._services
        edge = services.kafka.clusters[cluster]
        own = derive_record(services.journal.state)
        try:
            texts = await edge.mirrored_texts(self._pipeline)
            decide_still_owner(own, services.journal.state.replaces, derive_newest_record(texts.values()))
            if positions:
                await edge.mirror_offsets(self._pipeline, positions, encode_record(own))
        except KafkaRefused as refused:
            if cluster not in self._told:
                logger.warning(
                    "%s. Without this permission, a copied checkpoint directory, or a second daemon of this name "
                    "with another directory, cannot be detected, and lag tools see no offsets",
                    refused.message,
                )
            self._told.add(cluster)
