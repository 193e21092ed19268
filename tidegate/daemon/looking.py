"""What a recovery finds before it disturbs anybody: the journal, Kafka's record of the pipeline, the cluster of now.

Only reads. A start that is refused here has changed nothing, whoever runs.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec

from tidegate.coordinator.choice import Wish
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal import Used
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.owner import Known, decide_owner, refuse_repeated
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.daemon.choosing import NO_OPTIONS, Choosing, StartOptions
from tidegate.daemon.stores import Stores
from tidegate.errors import TidegateError
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.plan.meaning import derive_meanings
from tidegate.task.inflight import derive_shapes

logger = logging.getLogger(__name__)

LOOK_TRIES: Final = 3
"""A daemon that still runs may be quicker than a look; then the takeover, which stops it, comes before the next one."""


class Look(msgspec.Struct, frozen=True):
    """What was found before the takeover. Made by `look_first`."""

    before: JournalState
    facts: RestoreFacts
    choosing: Choosing
    replaced: tuple[str, ...]
    """See decide_owner."""
    used: Used
    """Numbers that other histories of the pipeline have used."""


async def look_first(plan: Plan, services: Stores, options: StartOptions, *, first: bool, verify: bool) -> Look:
    """Refuse before disturbing anybody, but not for what a daemon that still runs has changed or cleaned up meanwhile.

    `start/check.py` asks it, too: before Spark starts, and for `validate --connect`. `first`: what was agreed to in
    `options` holds. `verify`: read the newest checkpoint's state. A refusal that is repeated does not come from a
    journal that moves.

    The facts are newer than the journal that they are compared with, and the journal is newer than what Kafka says
    about the pipeline, which follows it. Raises what `recover` raises.
    """
    journal, said = services.journal, ""
    tries_left = LOOK_TRIES
    while True:
        tries_left -= 1
        known = await services.kafka.read_known(plan.pipeline)
        before = await services.in_journal_thread(journal.read)
        facts = await read_facts(plan, services)
        choosing = Choosing(services, facts, options.restore, verify=verify)
        replaced: tuple[str, ...] = ()
        try:
            decide_restore(before, facts)
            found = await choosing.look(before)
            wish = found if isinstance(found, Wish) else None
            place, word = services.storage.location, options if first else NO_OPTIONS
            replaced = _decide_owner(before, known, wish, word, place)
        except TidegateError as refusal:
            moved = (await services.in_journal_thread(journal.read)).next_sequence != before.next_sequence
            last = options.restore is not None and not tries_left
            if refusal.retriable or not moved or last or refusal.message == said:
                raise
            said = refusal.message
            logger.info("the journal has moved on while it was looked at: %s", refusal.message)
            if tries_left:
                continue
        used = choosing.used
        if known.record is not None:  # of this journal, too, where the directory is an old copy
            used = Used(max(used.attempt, known.record.attempt), max(used.checkpoint, known.record.checkpoint))
        return Look(before, facts, choosing, replaced, used)


def _decide_owner(
    before: JournalState, known: Known, wish: Wish | None, word: StartOptions, place: str
) -> tuple[str, ...]:
    """What somebody has said about output was said for one restore: it does not count where that is done (`wish` is
    None), nor where the directory was lost since. Raises PipelineKnown.
    """
    if wish is not None and not word.begin_anew:
        refuse_repeated(before, known, wish, place=place)
    consent = word.begin_anew or (wish is not None and word.repeats_output)
    return decide_owner(before, known, place=place, consent=consent)


async def read_facts(plan: Plan, services: Stores) -> RestoreFacts:
    """The pipeline and the cluster as they are now."""
    sources = plan.operators(SourceOperator)
    wanted = {topic for source in sources for topic in source.topics}
    wanted |= {sink.topic for sink in plan.operators(SinkOperator)}
    cluster_id, topics = await services.kafka.cluster_facts(wanted)
    fingerprint = hashlib.sha256(msgspec.json.encode((plan.vertices, plan.edges))).hexdigest()[:16]
    identity = Identity(
        pipeline=plan.pipeline,
        cluster_id=cluster_id,
        topic_ids={name: topics[name].topic_id for name in sorted(wanted)},
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprint=fingerprint,
        meanings=derive_meanings(plan),
    )
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(plan.max_parallelism))
    partitions = {source.name: {topic: topics[topic].partitions for topic in source.topics} for source in sources}
    edges = frozenset(shape.name for shape in derive_shapes(plan).values())
    return RestoreFacts(identity, partitions, stateful, edges)
