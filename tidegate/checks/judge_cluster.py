"""Judges what concerns the cluster as a whole: brokers, time, transactions, other programs, rights. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from tidegate.checks.cluster import MAX_TIMEOUT
from tidegate.checks.facts import ClusterFacts, Need, OtherWriter
from tidegate.checks.findings import Finding, Level
from tidegate.checks.outage import UNATTENDED, WEEKEND_MS, derive_unattended_ms
from tidegate.config.models import PipelineSettings
from tidegate.kafka.facts import CoordinatorState
from tidegate.settings.base import Path
from tidegate.settings.counts import render_seconds
from tidegate.settings.units import render_duration
from tidegate.sinks.hanging import Hanging, Verdict
from tidegate.sinks.naming import derive_name, is_replay

ID_EXPIRATION: Final = "transactional.id.expiration.ms"
SKEW_MS_MAX: Final = 5_000
WAIT_MS_MAX: Final = 60_000
NAMES_MAX: Final = 5
_SERVERS: Final[Path] = ("kafka", "bootstrap.servers")
_NAME: Final[Path] = ("name",)
_PREFIXED: Final = " --resource-pattern-type prefixed"


class Commands(msgspec.Struct, frozen=True):
    """Kafka's own commands, ready to be run by somebody who may."""

    bootstrap: str
    secured: bool = False

    @property
    def _where(self) -> str:
        return f"--bootstrap-server {self.bootstrap}" + (" --command-config ADMIN.properties" if self.secured else "")

    def alter_topic(self, topic: str, setting: str) -> str:
        """Set one setting of a topic."""
        return (
            f"kafka-configs.sh {self._where} --alter --entity-type topics --entity-name {topic} --add-config {setting}"
        )

    def grant(self, user: str, need: Need, operations: Iterable[str]) -> str:
        """Add to the access lists."""
        words = " ".join(f"--operation {operation}" for operation in operations)
        named = "" if need.resource == "cluster" else f" {need.name}"
        pattern = _PREFIXED if need.resource == "transactional-id" else ""
        return (
            f"kafka-acls.sh {self._where} --add --allow-principal User:{user} {words} --{need.resource}{named}{pattern}"
        )

    def transactions(self, words: str) -> str:
        """Look at transactions, or end one."""
        return f"kafka-transactions.sh {self._where} {words}"


def judge_cluster(settings: PipelineSettings, facts: ClusterFacts, commands: Commands, journal: str) -> list[Finding]:
    """In the order of CHECKS. `journal` is the token of the checkpoint directory's journal; empty: it is new."""
    exactly_once = settings.checkpoints.mode == "exactly-once"
    findings = [*_versions(facts), _brokers(facts), _clock(facts)]
    if exactly_once:
        findings += [_timeout(settings, facts), _expiration(settings, facts)]
    findings += judge_rights(facts.rights, commands)
    if exactly_once and facts.transactions_seen:
        findings += [*_ids(settings.name, facts, journal), *_writers(facts.others, commands)]
        findings += _transactions(facts, commands)
    elif exactly_once:
        found = "not seen: no output is there that this user may read"
        checks = ("other-ids", "other-writers", "open-transactions")
        findings += [Finding(check, Level.WARNING, found, "seen", path=("sinks",)) for check in checks]
    return findings


def _versions(facts: ClusterFacts) -> Iterator[Finding]:
    lacking = [one for one in facts.versions if one.lacking]
    for one in lacking:
        found = f"broker {one.node} is {one.version} and does not answer {', '.join(one.lacking)}"
        yield Finding("broker-version", Level.PROBLEM, found, "3.3 or newer", "upgrade this broker", _SERVERS)
    versions = sorted({one.version for one in facts.versions})
    if lacking or not versions:
        return
    level = Level.OK if len(versions) == 1 else Level.WARNING
    yield Finding("broker-version", level, " and ".join(versions), "3.3 or newer, all the same", path=_SERVERS)


def _brokers(facts: ClusterFacts) -> Finding:
    count = facts.cluster.brokers
    if count > 1:
        return Finding("brokers", Level.OK, str(count), "three or more", path=_SERVERS)
    found = "one: what it acknowledges is lost with its disk, and nothing runs without it"
    return Finding("brokers", Level.WARNING, found, "three or more; one is for development", path=_SERVERS)


def _measured(milliseconds: int) -> str:
    """As the log writes times that were measured; settings are written as the pipeline file has them, `1m30s`."""
    return render_seconds(milliseconds / 1000)


def _clock(facts: ClusterFacts) -> Finding:
    reading = facts.clock
    if reading is None:
        found = (
            "not seen: this user may not ask the controller (DESCRIBE on the cluster), or brokers are older than 3.3"
        )
        return Finding("clock", Level.WARNING, found, "at most 5 s apart", path=_SERVERS)
    size = abs(reading.ahead_ms)
    side = "ahead of" if reading.ahead_ms >= 0 else "behind"
    found = f"the controller is {_measured(size)} {side} this machine, give or take {_measured(reading.uncertain_ms)}"
    if size - reading.uncertain_ms <= SKEW_MS_MAX:
        return Finding("clock", Level.OK, found, "at most 5 s apart", path=_SERVERS)
    return Finding(
        "clock", Level.WARNING, found, "at most 5 s apart", "chronyc makestep, on whichever is wrong", _SERVERS
    )


def _timeout(settings: PipelineSettings, facts: ClusterFacts) -> Finding:
    wanted, limit = settings.checkpoints.transaction_timeout_ms, facts.cluster.max_transaction_timeout_ms
    path: Path = ("checkpoints", "transaction_timeout")
    if limit is None:
        found = f"{render_duration(wanted)}; the brokers' limit is hidden (DESCRIBE_CONFIGS on the cluster)"
        return Finding("transaction-timeout", Level.WARNING, found, f"at most {MAX_TIMEOUT}", path=path)
    found, most = f"{render_duration(wanted)}, and the brokers allow {render_duration(limit)}", render_duration(limit)
    if wanted <= limit:
        return Finding("transaction-timeout", Level.OK, found, f"at most {MAX_TIMEOUT}", path=path)
    mend = f"checkpoints: {{transaction_timeout: {most}}}; or {MAX_TIMEOUT}={wanted} at every broker"
    return Finding("transaction-timeout", Level.PROBLEM, found, f"at most {most}", mend, path)


def _expiration(settings: PipelineSettings, facts: ClusterFacts) -> Finding:
    text, unattended = facts.broker_settings.get(ID_EXPIRATION), derive_unattended_ms(settings)
    if text is None:
        found = f"{ID_EXPIRATION} is hidden (DESCRIBE_CONFIGS on the cluster)"
        return Finding("id-expiration", Level.WARNING, found, "seven days, which is the default", path=_SERVERS)
    lifetime = int(text)
    found, mend = f"{ID_EXPIRATION} is {render_duration(lifetime)}", f"{ID_EXPIRATION}=604800000 at every broker"
    if lifetime <= unattended:
        wanted = f"more than {render_duration(unattended)}, {UNATTENDED}"
        return Finding("id-expiration", Level.PROBLEM, found, wanted, mend, _SERVERS)
    if lifetime < WEEKEND_MS:
        return Finding("id-expiration", Level.WARNING, found, "at least three days", mend, _SERVERS)
    return Finding("id-expiration", Level.OK, found, "at least three days", path=_SERVERS)


def judge_rights(rights: Sequence[tuple[Need, bool]], commands: Commands) -> Iterator[Finding]:
    """One finding for each resource and user that lacks something, with the command that grants all of it."""
    missing = [need for need, had in rights if not had]
    groups = sorted(missing, key=lambda need: (need.login, need.resource, need.name))
    for _, found in groupby(groups, key=lambda need: (need.login, need.resource, need.name)):
        needs = list(found)
        first = needs[0]
        level = Level.PROBLEM if any(need.level is Level.PROBLEM for need in needs) else Level.WARNING
        operations = list(dict.fromkeys(need.operation for need in needs))
        subject = f"{first.resource} {first.name}".strip()
        uses = "; ".join(dict.fromkeys(f"{need.operation} for {need.use}" for need in needs))
        whose = f" (user of {first.login})" if first.login else ""
        mend = commands.grant(first.user, first, operations)
        path = next((need.path for need in needs if need.level is level), first.path)
        yield Finding("permissions", level, f"missing{whose}: {', '.join(operations)}", uses, mend, path, subject)
    if not missing:
        yield Finding("permissions", Level.OK, f"all {len(rights)} were tried", "each of them", path=_SERVERS)


def _ids(pipeline: str, facts: ClusterFacts, journal: str) -> Iterator[Finding]:
    strangers, open_elsewhere = [], set()
    for one in facts.listings:
        if is_replay(one.transactional_id):
            continue
        name = derive_name(one.transactional_id)
        if name is None:
            strangers.append(one.transactional_id)
        elif name.pipeline == pipeline and name.journal != journal and one.state is CoordinatorState.ONGOING:
            open_elsewhere.add(name.journal)
    if open_elsewhere and journal:
        found = f"another checkpoint directory (journal {', '.join(sorted(open_elsewhere))}) has open transactions"
        mend = f"stop the other daemon of pipeline {pipeline}, or give this one another name"
        yield Finding("other-ids", Level.PROBLEM, found, "one daemon and one directory for a name", mend, _NAME)
    if strangers:
        shown = ", ".join(sorted(strangers)[:NAMES_MAX])
        found = f"{len(strangers)} of another program begin with `{pipeline}.`, for instance {shown}"
        mend = "give one of the two another name: grants by prefix hold for both"
        yield Finding("other-ids", Level.WARNING, found, "none", mend, _NAME)
    if not (open_elsewhere and journal) and not strangers:
        yield Finding("other-ids", Level.OK, f"no others begin with `{pipeline}.`", "none", path=_NAME)


def _writers(others: Sequence[OtherWriter], commands: Commands) -> Iterator[Finding]:
    for topic, those in groupby(sorted(others, key=lambda one: one.topic), key=lambda one: one.topic):
        writers = list(those)
        named = sorted({one.transactional_id for one in writers if one.transactional_id})
        words = ", ".join(named[:NAMES_MAX]) or f"producer id {writers[0].producer_id}"
        text = f"{len(writers)} in the last day: {words}"
        mend = commands.transactions(f"describe-producers --topic {topic} --partition 0")
        yield Finding("other-writers", Level.WARNING, text, "this pipeline alone", mend, ("sinks",), topic)
    if not others:
        found = "none that is idempotent or transactional, in the last day"
        yield Finding("other-writers", Level.OK, found, "this pipeline alone", path=("sinks",))


def _transactions(facts: ClusterFacts, commands: Commands) -> Iterator[Finding]:
    long = [one for one in facts.waits if not one.own and one.open_ms > WAIT_MS_MAX]
    for one in facts.hanging:
        yield _hanging(one, commands)
    for wait in long:
        found = (
            f"{wait.transactional_id} is open for {render_duration(wait.open_ms // 1000 * 1000)} "
            f"from offset {wait.start_offset} on"
        )
        mend = commands.transactions(f"describe --transactional-id {wait.transactional_id}")
        subject = str(wait.partition)
        yield Finding("open-transactions", Level.WARNING, found, "ended by its owner", mend, ("sinks",), subject)
    if not facts.hanging and not long:
        found = f"none that hangs; {len(facts.waits)} open in order"
        yield Finding("open-transactions", Level.OK, found, "none", path=("sinks",))


def _hanging(one: Hanging, commands: Commands) -> Finding:
    opened, subject = one.opened, str(one.opened.partition)
    owner = one.transactional_id or f"producer id {opened.producer.id}"
    found = f"{owner} from offset {opened.start_offset} on: readers of committed records stop there"
    if one.decided:
        wanted = f"its missing {one.verdict.value} marker"
        return Finding("open-transactions", Level.WARNING, found, wanted, "a start writes it", ("sinks",), subject)
    end = commands.transactions(
        f"abort --topic {opened.partition.topic} --partition {opened.partition.partition} "
        f"--start-offset {opened.start_offset}"
    )
    seen = one.verdict is not Verdict.UNSEEN
    mend = f"ask its owner whether it was committed; only if not: {end}"
    wanted = "ended by its owner" if seen else "an owner that this user may see, or the end"
    return Finding(
        "open-transactions", Level.PROBLEM if seen else Level.WARNING, found, wanted, mend, ("sinks",), subject
    )
