"""Judges topics by their copies and settings: inputs, outputs, and Kafka's own logs. Pure."""

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
    SERVERS,
    STAMPS,
    UNCLEAN,
    ClusterFacts,
    SeenTopic,
    Use,
)
from tidegate.checks.findings import Finding, Severity
from tidegate.checks.judge_cluster import Commands
from tidegate.checks.uses import UNATTENDED, WEEKEND_MS, derive_unattended_ms
from tidegate.config.models import PipelineSettings
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.kafka.topic_settings import AFTER, BEFORE, UNLIMITED_MS, find_time_limit
from tidegate.settings.counts import render_count
from tidegate.settings.units import render_duration

_LOSS: Final = {
    TRANSACTION_LOG: "decisions about transactions can be lost, and with them committed output",
    OFFSETS_LOG: "mirrored positions, which lag tools see, can be lost",
}
DAY_MS: Final = 24 * 3600 * 1000
HOUR_MS: Final = 3600 * 1000
COPIES: Final = 3
ALMOST: Final = 0.9
"""The client's default limit on a record is a little below that of topics: of no concern."""


class _Look(msgspec.Struct, frozen=True):
    """One topic, with all that its judges need."""

    use: Use
    seen: SeenTopic
    brokers: int
    commands: Commands
    exactly_once: bool
    unattended_ms: int
    inputs: tuple[Mapping[str, str], ...]
    """Settings of all topics that are read."""

    def finding(self, check: str, level: Severity, value: str, expected: str = "", setting: str = "") -> Finding:
        remedy = self.commands.alter_topic(self.use.topic, setting) if setting and level is not Severity.OK else ""
        return Finding(check, level, value, expected, remedy, self.use.place, self.use.topic)


def judge_topics(
    settings: PipelineSettings, uses: Sequence[Use], facts: ClusterFacts, commands: Commands
) -> list[Finding]:
    """Check by check, topics in the order of `uses`; one that is not there, or hidden, is another check's matter."""
    exactly_once = settings.checkpoints.mode == "exactly-once"
    inputs = tuple(facts.topics[use.topic].settings for use in uses if not use.written)
    unattended_ms = derive_unattended_ms(settings)

    def look(use: Use, seen: SeenTopic) -> _Look:
        return _Look(use, seen, facts.brokers, commands, exactly_once, unattended_ms, inputs)

    looks = [look(use, seen) for use in uses if (seen := facts.topics[use.topic]).facts is not None]
    internal = [look(Use(name, SERVERS, written=True, loss=_LOSS[name]), seen) for name, seen in facts.internal.items()]
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
    level = Severity.OK if copies >= COPIES else Severity.WARNING if copies > 1 else Severity.PROBLEM
    value = render_count(copies, "copy", "copies")
    value += "" if copies > 1 else f", which is lost with its disk: {look.use.loss}"
    remedy = "" if level is Severity.OK else "kafka-reassign-partitions.sh, with three replicas for each partition"
    yield msgspec.structs.replace(look.finding("copies", level, value, "3 copies"), remedy=remedy)


def _in_sync(look: _Look) -> Iterator[Finding]:
    copies, least = look.seen.copies, look.seen.number(MIN_IN_SYNC)
    found = f"{MIN_IN_SYNC} is {least} of {copies}"
    if least is None:
        found = f"{MIN_IN_SYNC} is hidden (DESCRIBE_CONFIGS on the topic)"
        yield look.finding("min-in-sync", Severity.UNKNOWN, found, "2")
    elif copies and least > copies:
        most = max(1, copies - 1)
        found += ": nothing can be written"
        yield look.finding("min-in-sync", Severity.PROBLEM, found, f"at most {most}", f"{MIN_IN_SYNC}={most}")
    elif copies > 1 and least == 1:
        found += f", so one copy acknowledges what no other has: {look.use.loss}"
        yield look.finding("min-in-sync", Severity.PROBLEM, found, "2", f"{MIN_IN_SYNC}=2")
    elif copies > 1 and least == copies:
        found += ": writes stop while one broker is down"
        yield look.finding("min-in-sync", Severity.WARNING, found, f"{copies - 1}, with three copies")
    else:
        yield look.finding("min-in-sync", Severity.OK, found)


def _unclean(look: _Look) -> Iterator[Finding]:
    unclean = look.seen.settings.get(UNCLEAN)
    if unclean == "true":
        level = Severity.PROBLEM if look.seen.copies > 1 else Severity.WARNING
        found = f"{UNCLEAN} is on, so a copy that lacks acknowledged records can become the leader: {look.use.loss}"
        yield look.finding("unclean-election", level, found, "off", f"{UNCLEAN}=false")
    elif unclean is not None:
        yield look.finding("unclean-election", Severity.OK, "off")


# -- how long records stay ---------------------------------------------------------------------------------------------


def _retention(look: _Look) -> Iterator[Finding]:
    if look.use.written and not look.exactly_once:
        return  # nothing is read back
    if not look.seen.settings:
        found = f"{RETENTION} is hidden (DESCRIBE_CONFIGS on the topic)"
        yield look.finding("retention", Severity.UNKNOWN, found, "at least three days")
        return
    if not look.seen.has_policy("delete"):
        yield look.finding("retention", Severity.OK, "none: the topic is compacted", "at least three days")
        return
    kept_ms, size = look.seen.number(RETENTION), look.seen.number(RETENTION_BYTES)
    kept = "for ever" if kept_ms is None or kept_ms < 0 else render_duration(kept_ms)
    why = "what the broker aborts in an outage is gone" if look.use.written else "records that were not read are gone"
    setting = f"{RETENTION}={2 * WEEKEND_MS + DAY_MS}"
    if kept_ms is not None and 0 <= kept_ms <= look.unattended_ms:
        wanted = f"more than {render_duration(look.unattended_ms)}, {UNATTENDED}"
        yield look.finding("retention", Severity.PROBLEM, f"records stay for {kept}: then {why}", wanted, setting)
    elif kept_ms is not None and 0 <= kept_ms < WEEKEND_MS:
        yield look.finding(
            "retention", Severity.WARNING, f"records stay for {kept}: then {why}", "at least three days", setting
        )
    elif size is not None and size >= 0:
        found = f"{size} bytes for a partition ({RETENTION_BYTES}), whatever their age: then {why}"
        yield look.finding("retention", Severity.WARNING, found, "by time alone", f"{RETENTION_BYTES}=-1")
    elif _outlived(look, kept_ms):
        found = f"records stay for {kept}, by timestamps that the sink sets, and an input keeps older ones"
        yield look.finding("retention", Severity.WARNING, found, "as long as the inputs' is", f"{RETENTION}=-1")
    else:
        yield look.finding("retention", Severity.OK, kept, "at least three days")


def _outlived(look: _Look, kept_ms: int | None) -> bool:
    """An input has records that this output deletes as soon as they are written, by their timestamps."""
    if not look.use.written or not look.use.stamped or kept_ms is None or kept_ms < 0:
        return False
    kept = [settings[RETENTION] for settings in look.inputs if RETENTION in settings]
    return any(int(text) < 0 or int(text) > kept_ms for text in kept)


def _cleanup(look: _Look) -> Iterator[Finding]:
    if not look.seen.settings:
        return
    use, compacted, policy = look.use, look.seen.has_policy("compact"), look.seen.settings[CLEANUP]
    if not use.written:
        if compacted and not use.tombstones:
            found = f"{CLEANUP} is {policy}: a record that was overwritten before it was read is never read"
            yield look.finding("cleanup", Severity.WARNING, found, "delete, or a source that reads tombstones")
        else:
            yield look.finding("cleanup", Severity.OK, policy, "in order for this source")
    elif compacted and not use.keyed:
        found = f"{CLEANUP} is {policy}: it takes no record without a key, and this sink's have none"
        finding = look.finding("cleanup", Severity.PROBLEM, found, "`key` of the sink, or delete", f"{CLEANUP}=delete")
        yield msgspec.structs.replace(finding, prevents_start=True)
    elif use.tombstones and not compacted:
        found = f"{CLEANUP} is {policy}: tombstones delete nothing in it"
        yield look.finding("cleanup", Severity.WARNING, found, "compact", f"{CLEANUP}=compact")
    elif compacted and look.exactly_once and (look.seen.number(COMPACTION_LAG) or 0) < look.unattended_ms:
        lag = render_duration(look.seen.number(COMPACTION_LAG) or 0)
        found = f"{CLEANUP} is {policy}, after {lag}: what is aborted in an outage may be gone before it is read back"
        wanted = f"{COMPACTION_LAG} of at least {render_duration(look.unattended_ms)}"
        yield look.finding("cleanup", Severity.WARNING, found, wanted, f"{COMPACTION_LAG}={DAY_MS}")
    else:
        yield look.finding("cleanup", Severity.OK, policy, "in order for this sink")


# -- what a topic takes ------------------------------------------------------------------------------------------------


def _timestamps(look: _Look) -> Iterator[Finding]:
    if not look.seen.settings or not look.use.stamped:
        return
    replaced = look.seen.settings.get(STAMPS) == "LogAppendTime"
    (before, name), after = find_time_limit(look.seen.settings, BEFORE), look.seen.number(AFTER)
    if replaced and look.use.written:
        found = "the broker replaces the timestamps that the sink sets (LogAppendTime)"
        yield look.finding("timestamps", Severity.WARNING, found, "CreateTime", f"{STAMPS}=CreateTime")
    elif replaced:
        found = "event time is when a record arrived at the broker (LogAppendTime)"
        yield look.finding("timestamps", Severity.WARNING, found, "CreateTime", f"{STAMPS}=CreateTime")
    elif look.use.written and before is not None and before < DAY_MS:
        found = f"records more than {render_duration(before)} old are refused, so they are bad records"
        yield look.finding("timestamps", Severity.WARNING, found, "a day or more", f"{name}={UNLIMITED_MS}")
    elif look.use.written and after is not None and after < HOUR_MS:
        found = f"records more than {render_duration(after)} ahead are refused, so they are bad records"
        yield look.finding("timestamps", Severity.WARNING, found, "an hour or more", f"{AFTER}={HOUR_MS}")
    else:
        yield look.finding("timestamps", Severity.OK, "taken as they are", "CreateTime, and wide limits")


def _size(look: _Look) -> Iterator[Finding]:
    limit, client = look.seen.number(BATCH_BYTES), look.use.client_bytes
    if not look.use.written or limit is None:
        return
    largest = max((int(one[BATCH_BYTES]) for one in look.inputs if BATCH_BYTES in one), default=0)
    if limit < ALMOST * largest:
        found = f"{BATCH_BYTES} is {limit}, and an input takes {largest}"
        yield look.finding("record-size", Severity.WARNING, found, str(largest), f"{BATCH_BYTES}={largest}")
    elif client is not None and client < ALMOST * largest:
        found = f"the client's message.max.bytes is {client}, and an input takes {largest}"
        finding = look.finding("record-size", Severity.WARNING, found, str(largest))
        yield msgspec.structs.replace(finding, remedy=f"kafka: {{message.max.bytes: {largest}}} of the sink")
    else:
        yield look.finding("record-size", Severity.OK, f"{limit} bytes", "what inputs take")


_Judge = Callable[[_Look], Iterator[Finding]]
_OF_ACKNOWLEDGEMENTS: Final[Sequence[_Judge]] = (_copies, _in_sync, _unclean)
_OF_RECORDS: Final[Sequence[_Judge]] = (_retention, _cleanup, _timestamps, _size)
