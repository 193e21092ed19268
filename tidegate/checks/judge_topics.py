"""Judges topics by their replicas and settings: inputs, outputs, and Kafka's own logs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.checks.facts import (
    BATCH_BYTES,
    CLEANUP,
    COMPACTION_LAG,
    MIN_IN_SYNC,
    OFFSETS_LOG,
    RETENTION,
    RETENTION_BYTES,
    STAMPS,
    UNATTENDED,
    UNCLEAN,
    WEEKEND_MS,
    ClusterFacts,
    SeenTopic,
    Use,
    derive_unattended_ms,
)
from tidegate.checks.findings import Finding, Severity
from tidegate.checks.judge_cluster import Commands
from tidegate.config.fields.counts import render_count
from tidegate.config.fields.units import render_duration
from tidegate.config.models import PipelineSettings
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.kafka.topic_settings import AFTER, BEFORE, UNLIMITED_MS, find_time_limit

_LOSS: Final = {
    TRANSACTION_LOG: "decisions about transactions can be lost, and with them committed output",
    OFFSETS_LOG: "mirrored positions, which lag tools see, can be lost",
}
DAY_MS: Final = 24 * 3600 * 1000
HOUR_MS: Final = 3600 * 1000
COPIES: Final = 3
ALMOST: Final = 0.9
"""The client's default record limit is slightly below that of topics, which is acceptable."""


class _Topic(msgspec.Struct, frozen=True):
    """One topic, with all that its judges need."""

    use: Use
    seen: SeenTopic
    brokers: int
    commands: Commands
    exactly_once: bool
    unattended_ms: int
    inputs: tuple[Mapping[str, str], ...]
    """Settings of all topics that are read."""

    def finding(self, check: str, severity: Severity, value: str, expected: str = "", setting: str = "") -> Finding:
        remedy = self.commands.alter_topic(self.use.topic, setting) if setting and severity is not Severity.OK else ""
        return Finding(check, severity, value, expected, remedy, self.use.place, self.use.topic)


def judge_topics(
    settings: PipelineSettings,
    uses: Sequence[Use],
    facts: ClusterFacts,
    commands: Commands,
    inputs: Sequence[Mapping[str, str]],
) -> list[Finding]:
    """Judge the topics of a cluster, check by check. Missing or hidden topics are covered by another check.

    `uses` are those of this cluster. `inputs` are the settings of all topics that are read, in whatever cluster.
    """
    exactly_once = settings.checkpoints.mode == "exactly-once"
    unattended_ms = derive_unattended_ms(settings)

    def join(use: Use, seen: SeenTopic) -> _Topic:
        return _Topic(use, seen, facts.brokers, commands, exactly_once, unattended_ms, tuple(inputs))

    topics = [join(use, seen) for use in uses if (seen := facts.topics[use.topic]).facts is not None]
    internal = [
        join(Use(name, facts.servers, written=True, loss=_LOSS[name]), seen) for name, seen in facts.internal.items()
    ]
    findings: list[Finding] = []
    for judge in _OF_ACKNOWLEDGEMENTS:
        findings += [finding for one in [*topics, *internal] for finding in judge(one)]
    for judge in _OF_RECORDS:
        findings += [finding for one in topics for finding in judge(one)]
    return findings


# -- what an acknowledgement is worth ----------------------------------------------------------------------------------


def _copies(topic: _Topic) -> Iterator[Finding]:
    """Judge the replicas. A cluster of one broker is a finding of `brokers`."""
    copies = topic.seen.copies
    if topic.brokers == 1 or not copies:
        return
    severity = Severity.OK if copies >= COPIES else Severity.WARNING if copies > 1 else Severity.PROBLEM
    value = render_count(copies, "copy", "copies")
    value += "" if copies > 1 else f", which is lost with its disk: {topic.use.loss}"
    remedy = "" if severity is Severity.OK else "kafka-reassign-partitions.sh, with three replicas for each partition"
    yield msgspec.structs.replace(topic.finding("copies", severity, value, "3 copies"), remedy=remedy)


def _in_sync(topic: _Topic) -> Iterator[Finding]:
    copies, least = topic.seen.copies, topic.seen.number(MIN_IN_SYNC)
    value = f"{MIN_IN_SYNC} is {least} of {copies}"
    if least is None:
        value = f"{MIN_IN_SYNC} is hidden (DESCRIBE_CONFIGS on the topic)"
        yield topic.finding("min-in-sync", Severity.UNKNOWN, value, "2")
    elif copies and least > copies:
        most = max(1, copies - 1)
        value += ": nothing can be written"
        yield topic.finding("min-in-sync", Severity.PROBLEM, value, f"at most {most}", f"{MIN_IN_SYNC}={most}")
    elif copies > 1 and least == 1:
        value += f", so one copy acknowledges what no other has: {topic.use.loss}"
        yield topic.finding("min-in-sync", Severity.PROBLEM, value, "2", f"{MIN_IN_SYNC}=2")
    elif copies > 1 and least == copies:
        value += ": writes stop while one broker is down"
        yield topic.finding("min-in-sync", Severity.WARNING, value, f"{copies - 1}, with three copies")
    else:
        yield topic.finding("min-in-sync", Severity.OK, value)


def _unclean(topic: _Topic) -> Iterator[Finding]:
    unclean = topic.seen.settings.get(UNCLEAN)
    if unclean == "true":
        severity = Severity.PROBLEM if topic.seen.copies > 1 else Severity.WARNING
        value = f"{UNCLEAN} is on, so a copy that lacks acknowledged records can become the leader: {topic.use.loss}"
        yield topic.finding("unclean-election", severity, value, "off", f"{UNCLEAN}=false")
    elif unclean is not None:
        yield topic.finding("unclean-election", Severity.OK, "off")


# -- how long records stay ---------------------------------------------------------------------------------------------


def _retention(topic: _Topic) -> Iterator[Finding]:
    if topic.use.written and not topic.exactly_once:
        return  # nothing is read back
    if not topic.seen.settings:
        value = f"{RETENTION} is hidden (DESCRIBE_CONFIGS on the topic)"
        yield topic.finding("retention", Severity.UNKNOWN, value, "at least three days")
        return
    if not topic.seen.has_policy("delete"):
        yield topic.finding("retention", Severity.OK, "none: the topic is compacted", "at least three days")
        return
    kept_ms, size = topic.seen.number(RETENTION), topic.seen.number(RETENTION_BYTES)
    kept = "forever" if kept_ms is None or kept_ms < 0 else render_duration(kept_ms)
    why = (
        "records of transactions that the broker aborts in an outage are gone"
        if topic.use.written
        else "unread records are gone"
    )
    setting = f"{RETENTION}={2 * WEEKEND_MS + DAY_MS}"
    if kept_ms is not None and 0 <= kept_ms <= topic.unattended_ms:
        expected = f"more than {render_duration(topic.unattended_ms)}, {UNATTENDED}"
        yield topic.finding("retention", Severity.PROBLEM, f"records stay for {kept}: then {why}", expected, setting)
    elif kept_ms is not None and 0 <= kept_ms < WEEKEND_MS:
        yield topic.finding(
            "retention", Severity.WARNING, f"records stay for {kept}: then {why}", "at least three days", setting
        )
    elif size is not None and size >= 0:
        value = f"{size} bytes for a partition ({RETENTION_BYTES}), whatever their age: then {why}"
        yield topic.finding("retention", Severity.WARNING, value, "by time alone", f"{RETENTION_BYTES}=-1")
    elif _outlived(topic, kept_ms):
        value = f"records stay for {kept}, by timestamps that the sink sets, and an input keeps older ones"
        yield topic.finding("retention", Severity.WARNING, value, "as long as that of the inputs", f"{RETENTION}=-1")
    else:
        yield topic.finding("retention", Severity.OK, kept, "at least three days")


def _outlived(topic: _Topic, kept_ms: int | None) -> bool:
    """Return whether an input keeps records so old that this output deletes them as soon as they are written."""
    if not topic.use.written or not topic.use.stamped or kept_ms is None or kept_ms < 0:
        return False
    kept = [settings[RETENTION] for settings in topic.inputs if RETENTION in settings]
    return any(int(text) < 0 or int(text) > kept_ms for text in kept)


def _cleanup(topic: _Topic) -> Iterator[Finding]:
    if not topic.seen.settings:
        return
    use, compacted, policy = topic.use, topic.seen.has_policy("compact"), topic.seen.settings[CLEANUP]
    if not use.written:
        if compacted and not use.tombstones:
            value = f"{CLEANUP} is {policy}: a record that was overwritten before it was read is never read"
            yield topic.finding("cleanup", Severity.WARNING, value, "delete, or a source that reads tombstones")
        else:
            yield topic.finding("cleanup", Severity.OK, policy, "suitable for this source")
    elif compacted and not use.keyed:
        value = f"{CLEANUP} is {policy}: its records need keys, and this sink writes none"
        finding = topic.finding("cleanup", Severity.PROBLEM, value, "`key` of the sink, or delete", f"{CLEANUP}=delete")
        yield msgspec.structs.replace(finding, prevents_start=True)
    elif use.tombstones and not compacted:
        value = f"{CLEANUP} is {policy}: tombstones delete nothing in it"
        yield topic.finding("cleanup", Severity.WARNING, value, "compact", f"{CLEANUP}=compact")
    elif compacted and topic.exactly_once and (topic.seen.number(COMPACTION_LAG) or 0) < topic.unattended_ms:
        lag = render_duration(topic.seen.number(COMPACTION_LAG) or 0)
        value = (
            f"{CLEANUP} is {policy}, after {lag}: records of transactions that are aborted in an outage may be gone "
            "before they are read back"
        )
        expected = f"{COMPACTION_LAG} of at least {render_duration(topic.unattended_ms)}"
        yield topic.finding("cleanup", Severity.WARNING, value, expected, f"{COMPACTION_LAG}={DAY_MS}")
    else:
        yield topic.finding("cleanup", Severity.OK, policy, "suitable for this sink")


# -- what a topic takes ------------------------------------------------------------------------------------------------


def _timestamps(topic: _Topic) -> Iterator[Finding]:
    if not topic.seen.settings or not topic.use.stamped:
        return
    replaced = topic.seen.settings.get(STAMPS) == "LogAppendTime"
    (before, name), after = find_time_limit(topic.seen.settings, BEFORE), topic.seen.number(AFTER)
    if replaced and topic.use.written:
        value = "the broker replaces the timestamps that the sink sets (LogAppendTime)"
        yield topic.finding("timestamps", Severity.WARNING, value, "CreateTime", f"{STAMPS}=CreateTime")
    elif replaced:
        value = "event time is when a record arrived at the broker (LogAppendTime)"
        yield topic.finding("timestamps", Severity.WARNING, value, "CreateTime", f"{STAMPS}=CreateTime")
    elif topic.use.written and before is not None and before < DAY_MS:
        value = f"records more than {render_duration(before)} old are refused, so they are bad records"
        yield topic.finding("timestamps", Severity.WARNING, value, "a day or more", f"{name}={UNLIMITED_MS}")
    elif topic.use.written and after is not None and after < HOUR_MS:
        value = f"records more than {render_duration(after)} ahead are refused, so they are bad records"
        yield topic.finding("timestamps", Severity.WARNING, value, "an hour or more", f"{AFTER}={HOUR_MS}")
    else:
        yield topic.finding("timestamps", Severity.OK, "kept unchanged", "CreateTime, and wide limits")


def _size(topic: _Topic) -> Iterator[Finding]:
    limit, client = topic.seen.number(BATCH_BYTES), topic.use.client_bytes
    if not topic.use.written or limit is None:
        return
    largest = max((int(one[BATCH_BYTES]) for one in topic.inputs if BATCH_BYTES in one), default=0)
    if limit < ALMOST * largest:
        value = f"{BATCH_BYTES} is {limit}, and an input allows {largest}"
        yield topic.finding("record-size", Severity.WARNING, value, str(largest), f"{BATCH_BYTES}={largest}")
    elif client is not None and client < ALMOST * largest:
        value = f"the client's message.max.bytes is {client}, and an input allows {largest}"
        finding = topic.finding("record-size", Severity.WARNING, value, str(largest))
        yield msgspec.structs.replace(finding, remedy=f"kafka: {{message.max.bytes: {largest}}} of the sink")
    else:
        yield topic.finding("record-size", Severity.OK, f"{limit} bytes", "the limit of the inputs")


_Judge = Callable[[_Topic], Iterator[Finding]]
_OF_ACKNOWLEDGEMENTS: Final[Sequence[_Judge]] = (_copies, _in_sync, _unclean)
_OF_RECORDS: Final[Sequence[_Judge]] = (_retention, _cleanup, _timestamps, _size)
