"""Judges topics by their copies and settings: inputs, outputs, and Kafka's own logs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.checks.cluster import BATCH_BYTES, CLEANUP, MIN_IN_SYNC, UNCLEAN, SeenTopic
from tidegate.checks.facts import ClusterFacts, Use
from tidegate.checks.findings import Finding, Level
from tidegate.checks.judge_cluster import Commands
from tidegate.checks.outage import UNATTENDED, WEEKEND_MS, derive_unattended_ms
from tidegate.config.models import PipelineSettings
from tidegate.kafka.topic_settings import AFTER, BEFORE, DIFFERENCE, UNLIMITED_MS, find_time_limit
from tidegate.settings.units import render_duration

RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
COMPACTION_LAG: Final = "min.compaction.lag.ms"
STAMPS: Final = "message.timestamp.type"
READ_SETTINGS: Final = (
    RETENTION, RETENTION_BYTES, COMPACTION_LAG, STAMPS, BEFORE, AFTER, DIFFERENCE, BATCH_BYTES, CLEANUP, MIN_IN_SYNC,
    UNCLEAN,
)  # fmt: skip

DAY_MS: Final = 24 * 3600 * 1000
HOUR_MS: Final = 3600 * 1000
COPIES: Final = 3
ALMOST: Final = 0.9
"""The client's default limit on a record is a little below that of topics: of no concern."""
_SERVERS: Final = ("kafka", "bootstrap.servers")


class _Look(msgspec.Struct, frozen=True):
    """One topic, with all that its judges need."""

    use: Use
    seen: SeenTopic
    settings: Mapping[str, str]
    brokers: int
    commands: Commands
    exactly_once: bool
    unattended_ms: int
    inputs: tuple[Mapping[str, str], ...]
    """Settings of all topics that are read."""

    def finding(self, check: str, level: Level, found: str, wanted: str, setting: str = "") -> Finding:
        mend = self.commands.alter_topic(self.use.topic, setting) if setting and level is not Level.OK else ""
        return Finding(check, level, found, wanted, mend, self.use.path, self.use.topic)

    def number(self, name: str) -> int | None:
        text = self.settings.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else None

    def policy(self, word: str) -> bool:
        return word in self.settings.get(CLEANUP, "")


def judge_topics(
    settings: PipelineSettings, uses: Sequence[Use], facts: ClusterFacts, commands: Commands
) -> list[Finding]:
    """Check by check, topics in the order of `uses`; one that is not there, or hidden, is another check's matter."""
    exactly_once = settings.checkpoints.mode == "exactly-once"
    inputs = tuple(facts.settings.get(use.topic, {}) for use in uses if not use.written)
    unattended_ms = derive_unattended_ms(settings)

    def look(use: Use, seen: SeenTopic) -> _Look:
        own = facts.settings.get(use.topic, {})
        return _Look(use, seen, own, facts.cluster.brokers, commands, exactly_once, unattended_ms, inputs)

    looks = [look(use, seen) for use in uses if (seen := facts.cluster.topics[use.topic]).facts is not None]
    internal = [look(Use(name, _SERVERS, written=True), seen) for name, seen in facts.cluster.internal.items()]
    findings: list[Finding] = []
    for judge in _OF_ACKNOWLEDGEMENTS:
        findings += [finding for one in [*looks, *internal] for finding in judge(one)]
    for judge in _OF_RECORDS:
        findings += [finding for one in looks for finding in judge(one)]
    return findings


# -- what an acknowledgement is worth ----------------------------------------------------------------------------------


def _copies(look: _Look) -> Iterator[Finding]:
    """In a cluster of one broker there is nothing to choose: `brokers` says so."""
    copies = look.seen.copies
    if look.brokers == 1 or not copies:
        return
    level = Level.OK if copies >= COPIES else Level.WARNING if copies > 1 else Level.PROBLEM
    mend = "" if level is Level.OK else "kafka-reassign-partitions.sh, with a plan of three replicas for each partition"
    finding = look.finding("copies", level, str(copies), "3")
    yield msgspec.structs.replace(finding, mend=mend)


def _in_sync(look: _Look) -> Iterator[Finding]:
    copies, least = look.seen.copies, look.seen.min_in_sync
    if least is None:
        found = f"{MIN_IN_SYNC} is hidden (DESCRIBE_CONFIGS on the topic)"
        yield look.finding("min-in-sync", Level.WARNING, found, "2")
    elif copies and least > copies:
        found = f"{least} of {copies}: nothing can be written"
        wanted = f"at most {max(1, copies - 1)}"
        yield look.finding("min-in-sync", Level.PROBLEM, found, wanted, f"{MIN_IN_SYNC}={max(1, copies - 1)}")
    elif copies > 1 and least == 1:
        found = f"1 of {copies}: one copy acknowledges what no other has"
        yield look.finding("min-in-sync", Level.PROBLEM, found, "2", f"{MIN_IN_SYNC}=2")
    elif copies > 1 and least == copies:
        found = f"{least} of {copies}: one broker away stops writes"
        yield look.finding("min-in-sync", Level.WARNING, found, f"{copies - 1}, with three copies")
    else:
        yield look.finding("min-in-sync", Level.OK, f"{least} of {copies}", f"{least} of {copies}")


def _unclean(look: _Look) -> Iterator[Finding]:
    if look.seen.unclean:
        level = Level.PROBLEM if look.seen.copies > 1 else Level.WARNING
        found = "on: a copy that lacks acknowledged records can become the leader"
        yield look.finding("unclean-election", level, found, "off", f"{UNCLEAN}=false")
    elif look.seen.unclean is not None:
        yield look.finding("unclean-election", Level.OK, "off", "off")


# -- how long records stay ---------------------------------------------------------------------------------------------


def _retention(look: _Look) -> Iterator[Finding]:
    if look.use.written and not look.exactly_once:
        return  # nothing is read back
    if not look.settings:
        yield look.finding("retention", Level.WARNING, "hidden (DESCRIBE_CONFIGS on the topic)", "at least three days")
        return
    if not look.policy("delete"):
        yield look.finding("retention", Level.OK, "none: the topic is compacted", "at least three days")
        return
    kept_ms, size = look.number(RETENTION), look.number(RETENTION_BYTES)
    kept = "for ever" if kept_ms is None or kept_ms < 0 else render_duration(kept_ms)
    why = "what the broker aborts in an outage is gone" if look.use.written else "records that were not read are gone"
    setting = f"{RETENTION}={2 * WEEKEND_MS + DAY_MS}"
    if kept_ms is not None and 0 <= kept_ms <= look.unattended_ms:
        wanted = f"more than {render_duration(look.unattended_ms)}, {UNATTENDED}"
        yield look.finding("retention", Level.PROBLEM, f"{kept}: then {why}", wanted, setting)
    elif kept_ms is not None and 0 <= kept_ms < WEEKEND_MS:
        yield look.finding("retention", Level.WARNING, f"{kept}: then {why}", "at least three days", setting)
    elif size is not None and size >= 0:
        found = f"{size} bytes for a partition ({RETENTION_BYTES}), whatever their age: then {why}"
        yield look.finding("retention", Level.WARNING, found, "by time alone", f"{RETENTION_BYTES}=-1")
    elif _outlived(look, kept_ms):
        found = f"{kept}, by timestamps that the sink sets, and an input keeps older records"
        yield look.finding("retention", Level.WARNING, found, "as long as the inputs' is", f"{RETENTION}=-1")
    else:
        yield look.finding("retention", Level.OK, kept, "at least three days")


def _outlived(look: _Look, kept_ms: int | None) -> bool:
    """An input has records that this output deletes as soon as they are written, by their timestamps."""
    if not look.use.written or not look.use.stamped or kept_ms is None or kept_ms < 0:
        return False
    kept = [settings[RETENTION] for settings in look.inputs if RETENTION in settings]
    return any(int(text) < 0 or int(text) > kept_ms for text in kept)


def _cleanup(look: _Look) -> Iterator[Finding]:
    if not look.settings:
        return
    use, compacted, policy = look.use, look.policy("compact"), look.settings[CLEANUP]
    if not use.written:
        if compacted and not use.tombstones:
            found = f"{policy}: a record that was overwritten before it was read is never read"
            yield look.finding("cleanup", Level.WARNING, found, "delete, or a source that reads tombstones")
        else:
            yield look.finding("cleanup", Level.OK, policy, "in order for this source")
    elif compacted and not use.keyed:
        found = f"{policy}: it takes no record without a key, and this sink's have none"
        yield look.finding("cleanup", Level.PROBLEM, found, "`key` of the sink, or delete", f"{CLEANUP}=delete")
    elif use.tombstones and not compacted:
        found = f"{policy}: tombstones delete nothing in it"
        yield look.finding("cleanup", Level.WARNING, found, "compact", f"{CLEANUP}=compact")
    elif compacted and look.exactly_once and (look.number(COMPACTION_LAG) or 0) < look.unattended_ms:
        lag = render_duration(look.number(COMPACTION_LAG) or 0)
        found = f"{policy}, after {lag}: what the broker aborts in an outage may be gone before it is read back"
        wanted = f"{COMPACTION_LAG} of at least {render_duration(look.unattended_ms)}"
        yield look.finding("cleanup", Level.WARNING, found, wanted, f"{COMPACTION_LAG}={DAY_MS}")
    else:
        yield look.finding("cleanup", Level.OK, policy, "in order for this sink")


# -- what a topic takes ------------------------------------------------------------------------------------------------


def _timestamps(look: _Look) -> Iterator[Finding]:
    if not look.settings or not look.use.stamped:
        return
    replaced = look.settings.get(STAMPS) == "LogAppendTime"
    (before, name), after = find_time_limit(look.settings, BEFORE), look.number(AFTER)
    if replaced and look.use.written:
        found = "the broker replaces the timestamps that the sink sets (LogAppendTime)"
        yield look.finding("timestamps", Level.WARNING, found, "CreateTime", f"{STAMPS}=CreateTime")
    elif replaced:
        found = "event time is when a record arrived at the broker (LogAppendTime)"
        yield look.finding("timestamps", Level.WARNING, found, "CreateTime", f"{STAMPS}=CreateTime")
    elif look.use.written and before is not None and before < DAY_MS:
        found = f"records more than {render_duration(before)} old are refused, so they are bad records"
        yield look.finding("timestamps", Level.WARNING, found, "a day or more", f"{name}={UNLIMITED_MS}")
    elif look.use.written and after is not None and after < HOUR_MS:
        found = f"records more than {render_duration(after)} ahead are refused, so they are bad records"
        yield look.finding("timestamps", Level.WARNING, found, "an hour or more", f"{AFTER}={HOUR_MS}")
    else:
        yield look.finding("timestamps", Level.OK, "taken as they are", "CreateTime, and wide limits")


def _size(look: _Look) -> Iterator[Finding]:
    limit, client = look.number(BATCH_BYTES), look.use.client_bytes
    if not look.use.written or limit is None:
        return
    largest = max((int(one[BATCH_BYTES]) for one in look.inputs if BATCH_BYTES in one), default=0)
    if limit < ALMOST * largest:
        found = f"{BATCH_BYTES} is {limit}, and an input takes {largest}"
        yield look.finding("record-size", Level.WARNING, found, str(largest), f"{BATCH_BYTES}={largest}")
    elif client is not None and client < ALMOST * largest:
        found = f"the client's message.max.bytes is {client}, and an input takes {largest}"
        finding = look.finding("record-size", Level.WARNING, found, str(largest))
        yield msgspec.structs.replace(finding, mend=f"kafka: {{message.max.bytes: {largest}}} of the sink")
    else:
        yield look.finding("record-size", Level.OK, f"{limit} bytes", "what inputs take")


_Judge = Callable[[_Look], Iterator[Finding]]
_OF_ACKNOWLEDGEMENTS: Final[Sequence[_Judge]] = (_copies, _in_sync, _unclean)
_OF_RECORDS: Final[Sequence[_Judge]] = (_retention, _cleanup, _timestamps, _size)
