"""Judges a cluster as a whole: brokers, clock, transactions, other programs, rights. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from tidegate.checks.facts import (
    ID_EXPIRATION,
    MAX_TIMEOUT,
    UNATTENDED,
    WEEKEND_MS,
    ClusterFacts,
    Need,
    OtherWriter,
    derive_unattended_ms,
)
from tidegate.checks.findings import Finding, Severity
from tidegate.config.clusters import place_of
from tidegate.config.fields.base import Path
from tidegate.config.fields.counts import render_seconds
from tidegate.config.fields.units import render_duration
from tidegate.config.models import PipelineSettings
from tidegate.kafka.facts import CoordinatorState
from tidegate.sinks.hanging_transactions import HangingTransaction, HangingVerdict
from tidegate.sinks.naming import derive_name, is_replay

SKEW_MS_MAX: Final = 5_000
WAIT_MS_MAX: Final = 60_000
NAMES_MAX: Final = 5
_NAME: Final[Path] = ("name",)
_PREFIXED: Final = " --resource-pattern-type prefixed"


class Commands(msgspec.Struct, frozen=True):
    """Kafka's own commands, ready to be run by a user with the rights."""

    bootstrap: str
    secured: bool = False

    @property
    def _where(self) -> str:
        return f"--bootstrap-server {self.bootstrap}" + (" --command-config ADMIN.properties" if self.secured else "")

    def alter_topic(self, topic: str, setting: str) -> str:
        """Render the command that changes one setting of a topic."""
        return (
            f"kafka-configs.sh {self._where} --alter --entity-type topics --entity-name {topic} --add-config {setting}"
        )

    def grant(self, user: str, need: Need, operations: Iterable[str]) -> str:
        """Render the command that grants a user operations on a resource."""
        granted = " ".join(f"--operation {operation}" for operation in operations)
        named = "" if need.resource == "cluster" else f" {need.name}"
        pattern = _PREFIXED if need.resource == "transactional-id" else ""
        return (
            f"kafka-acls.sh {self._where} --add --allow-principal User:{user} {granted} "
            f"--{need.resource}{named}{pattern}"
        )

    def transactions(self, arguments: str) -> str:
        """Render the command that inspects transactions or ends one."""
        return f"kafka-transactions.sh {self._where} {arguments}"


def judge_cluster(settings: PipelineSettings, facts: ClusterFacts, commands: Commands, journal: str) -> list[Finding]:
    """Judge a cluster, in the order of CHECKS. `journal` is the token of the journal; empty if it is new."""
    exactly_once = facts.is_written and settings.checkpoints.mode == "exactly-once"
    findings = [*judge_versions(facts), _brokers(facts), _clock(facts)]
    if exactly_once:
        findings += [_timeout(settings, facts), _expiration(settings, facts)]
    findings += judge_rights(facts, commands)
    if exactly_once and facts.transactions_seen:
        findings += [*_ids(settings.name, facts, journal), *_writers(facts.others, commands)]
        findings += _transactions(facts, commands)
    elif exactly_once:
        value = "unknown: this user may read no output"
        checks = ("other-ids", "other-writers", "open-transactions")
        findings += [Finding(check, Severity.UNKNOWN, value, place=("sinks",)) for check in checks]
    return findings


def judge_versions(facts: ClusterFacts) -> Iterator[Finding]:
    """Judge the versions of the brokers. A broker that lacks requests prevents a start."""
    lacking = [one for one in facts.versions if one.lacking]
    for one in lacking:
        value = f"broker {one.node} is Kafka {one.version}: it does not answer {', '.join(one.lacking)}"
        remedy = "upgrade it to Kafka 3.3 or newer (`tidegate docs compatibility`)"
        yield Finding("broker-version", Severity.PROBLEM, value, "", remedy, facts.servers, prevents_start=True)
    versions = sorted({one.version for one in facts.versions})
    if lacking or not versions:
        return
    severity = Severity.OK if len(versions) == 1 else Severity.WARNING
    yield Finding("broker-version", severity, " and ".join(versions), "3.3 or newer, all the same", place=facts.servers)


def _brokers(facts: ClusterFacts) -> Finding:
    count = facts.brokers
    if count > 1:
        return Finding("brokers", Severity.OK, f"{count} brokers", "three or more", place=facts.servers)
    value = "the cluster has one broker: acknowledged records are lost with its disk, and nothing runs without it"
    return Finding("brokers", Severity.WARNING, value, "three or more; one is for development", place=facts.servers)


def _measured(milliseconds: int) -> str:
    """Render a measured time as in the log; settings are rendered as in the pipeline file, `1m30s`."""
    return render_seconds(milliseconds / 1000)


def _clock(facts: ClusterFacts) -> Finding:
    reading = facts.clock
    if reading is None:
        value = "unknown: this user may not ask the controller (DESCRIBE on the cluster), or brokers are older than 3.3"
        return Finding("clock", Severity.UNKNOWN, value, "at most 5 s apart", place=facts.servers)
    size = abs(reading.ahead_ms)
    side = "ahead of" if reading.ahead_ms >= 0 else "behind"
    value = f"the controller's clock is {_measured(size)} {side} this machine's (±{_measured(reading.uncertain_ms)})"
    if size - reading.uncertain_ms <= SKEW_MS_MAX:
        return Finding("clock", Severity.OK, value, "at most 5 s apart", place=facts.servers)
    return Finding(
        "clock",
        Severity.WARNING,
        value,
        "at most 5 s apart",
        "run chronyc makestep on the machine whose clock is wrong",
        facts.servers,
    )


def _timeout(settings: PipelineSettings, facts: ClusterFacts) -> Finding:
    timeout_ms, limit = settings.checkpoints.transaction_timeout_ms, facts.broker_settings.get(MAX_TIMEOUT)
    place: Path = ("checkpoints", "transaction_timeout")
    if limit is None:
        value = f"{render_duration(timeout_ms)}; the brokers' limit is hidden (DESCRIBE_CONFIGS on the cluster)"
        return Finding("transaction-timeout", Severity.UNKNOWN, value, f"at most {MAX_TIMEOUT}", place=place)
    most = render_duration(limit)
    if timeout_ms <= limit:
        value = f"{render_duration(timeout_ms)}, and the brokers allow {most}"
        return Finding("transaction-timeout", Severity.OK, value, f"at most {MAX_TIMEOUT}", place=place)
    value = f"{render_duration(timeout_ms)} is more than the brokers allow ({MAX_TIMEOUT})"
    remedy = f"checkpoints: {{transaction_timeout: {most}}}; or {MAX_TIMEOUT}={timeout_ms} at every broker"
    return Finding(
        "transaction-timeout", Severity.PROBLEM, value, f"at most {most}", remedy, place, prevents_start=True
    )


def _expiration(settings: PipelineSettings, facts: ClusterFacts) -> Finding:
    lifetime, unattended = facts.broker_settings.get(ID_EXPIRATION), derive_unattended_ms(settings)
    if lifetime is None:
        value = f"{ID_EXPIRATION} is hidden (DESCRIBE_CONFIGS on the cluster)"
        return Finding(
            "id-expiration", Severity.UNKNOWN, value, "seven days, which is the default", place=facts.servers
        )
    value, remedy = f"{ID_EXPIRATION} is {render_duration(lifetime)}", f"{ID_EXPIRATION}=604800000 at every broker"
    if lifetime <= unattended:
        expected = f"more than {render_duration(unattended)}, {UNATTENDED}"
        return Finding("id-expiration", Severity.PROBLEM, value, expected, remedy, facts.servers)
    if lifetime < WEEKEND_MS:
        return Finding("id-expiration", Severity.WARNING, value, "at least three days", remedy, facts.servers)
    return Finding("id-expiration", Severity.OK, value, "at least three days", place=facts.servers)


def judge_rights(facts: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    """Judge the rights: one finding per resource and user, with the command that grants all missing rights."""
    missing = [need for need, had in facts.rights if not had]
    groups = sorted(missing, key=lambda need: (need.login, need.resource, need.name))
    for _, group in groupby(groups, key=lambda need: (need.login, need.resource, need.name)):
        needs = list(group)
        first = needs[0]
        severity = Severity.PROBLEM if any(need.severity is Severity.PROBLEM for need in needs) else Severity.WARNING
        operations = list(dict.fromkeys(need.operation for need in needs))
        subject = f"{first.resource} {first.name}".strip()
        uses = ", ".join(dict.fromkeys(f"{need.operation} for {need.use}" for need in needs))
        whose = f" of {first.login}" if first.login else f" of `{'.'.join(map(str, place_of(facts.name)))}:`"
        remedy = commands.grant(first.user, first, operations)
        place = next((need.place for need in needs if need.severity is severity), first.place)
        value, prevents = f"the user{whose} lacks {uses}", severity is Severity.PROBLEM
        yield Finding("permissions", severity, value, "", remedy, place, subject, prevents_start=prevents)
    if not missing:
        yield Finding(
            "permissions", Severity.OK, f"all {len(facts.rights)} were tested", "each of them", place=facts.servers
        )


def _ids(pipeline: str, facts: ClusterFacts, journal: str) -> Iterator[Finding]:
    others, open_elsewhere = [], set()
    for one in facts.listings:
        if is_replay(one.transactional_id):
            continue
        name = derive_name(one.transactional_id)
        if name is None:
            others.append(one.transactional_id)
        elif name.pipeline == pipeline and name.journal != journal and one.state is CoordinatorState.ONGOING:
            open_elsewhere.add(name.journal)
    if open_elsewhere and journal:
        value = f"another checkpoint directory (journal {', '.join(sorted(open_elsewhere))}) has open transactions"
        remedy = f"stop the other daemon of pipeline {pipeline}, or give this one another name"
        yield Finding("other-ids", Severity.PROBLEM, value, "one daemon and one directory for a name", remedy, _NAME)
    if others:
        shown = ", ".join(sorted(others)[:NAMES_MAX])
        value = f"{len(others)} transactional ids of another program begin with `{pipeline}.`, for instance {shown}"
        remedy = "give one of the two another name: grants by prefix hold for both"
        yield Finding("other-ids", Severity.WARNING, value, "none", remedy, _NAME)
    if not (open_elsewhere and journal) and not others:
        yield Finding(
            "other-ids", Severity.OK, f"none of another program begin with `{pipeline}.`", "none", place=_NAME
        )


def _writers(others: Sequence[OtherWriter], commands: Commands) -> Iterator[Finding]:
    for topic, those in groupby(sorted(others, key=lambda one: one.topic), key=lambda one: one.topic):
        writers = list(those)
        named = sorted({one.transactional_id for one in writers if one.transactional_id})
        writing = ", ".join(named[:NAMES_MAX]) or f"producer id {writers[0].producer_id}"
        text = f"{len(writers)} other producers in the last day: {writing}"
        remedy = commands.transactions(f"describe-producers --topic {topic} --partition 0")
        yield Finding("other-writers", Severity.WARNING, text, "this pipeline alone", remedy, ("sinks",), topic)
    if not others:
        value = "none that is idempotent or transactional, in the last day"
        yield Finding("other-writers", Severity.OK, value, "this pipeline alone", place=("sinks",))


def _transactions(facts: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    long = [one for one in facts.waits if not one.own and one.open_ms > WAIT_MS_MAX]
    for one in facts.hanging:
        yield _hanging(one, commands)
    for wait in long:
        value = (
            f"{wait.transactional_id} is open for {render_duration(wait.open_ms // 1000 * 1000)} "
            f"from offset {wait.start_offset} on"
        )
        remedy = commands.transactions(f"describe --transactional-id {wait.transactional_id}")
        subject = str(wait.partition)
        yield Finding("open-transactions", Severity.WARNING, value, "ended by its owner", remedy, ("sinks",), subject)
    if not facts.hanging and not long:
        value = f"no hanging transaction; {len(facts.waits)} open normally"
        yield Finding("open-transactions", Severity.OK, value, "none", place=("sinks",))


def _hanging(one: HangingTransaction, commands: Commands) -> Finding:
    opened, subject = one.opened, str(one.opened.partition)
    owner = one.transactional_id or f"producer id {opened.producer.id}"
    value = f"{owner} is open from offset {opened.start_offset} on: readers of committed records stop there"
    if one.decided:
        expected = f"its missing {one.verdict.value} marker"
        return Finding("open-transactions", Severity.WARNING, value, expected, "a start writes it", ("sinks",), subject)
    end = commands.transactions(
        f"abort --topic {opened.partition.topic} --partition {opened.partition.partition} "
        f"--start-offset {opened.start_offset}"
    )
    seen = one.verdict is not HangingVerdict.UNSEEN
    remedy = f"ask its owner whether it was committed; only if not: {end}"
    expected = "ended by its owner" if seen else "an owner that this user may see, or the end"
    return Finding(
        "open-transactions",
        Severity.PROBLEM if seen else Severity.WARNING,
        value,
        expected,
        remedy,
        ("sinks",),
        subject,
    )
