"""The survey of a deployment: facts are collected, then judged into findings.

`run`, `validate --connect` and `doctor` share the findings. `run` fails on those that prevent a start and logs the
others, `validate` prints both as problems of the file, `doctor` prints all. The survey changes nothing and does not
affect a running daemon. Any condition that can prevent a start and can be determined without Spark belongs here, or in
the preflight of a recovery, which `StartTarget.compare` runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.checks.cluster import read_cluster
from tidegate.checks.details import read_details
from tidegate.checks.facts import ClusterFacts, StartTarget, derive_uses
from tidegate.checks.findings import CHECKS, Finding, Severity
from tidegate.checks.judge_cluster import Commands, judge_cluster, judge_versions
from tidegate.checks.judge_machine import judge_machine, judge_storage_error
from tidegate.checks.judge_start import judge_broker_error, judge_comparison, judge_error, judge_start
from tidegate.checks.judge_topics import judge_topics
from tidegate.checks.machine import find_runtime_problems, read_machine
from tidegate.checks.registry import check_registrations
from tidegate.config.clusters import derive_clusters
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.journal_state import JournalState
from tidegate.errors import TidegateError
from tidegate.ids import ClusterName
from tidegate.kafka.channel import STEP_S, connect, import_client
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.properties import derive_login, derive_servers
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.storage.base import StorageError

logger = logging.getLogger(__name__)

QUIET_S: Final = 1.0
"""How long a broker may be silent before a warning about it is logged."""
_ORDER: Final = {name: place for place, name in enumerate(CHECKS)}
_SECURED: Final = ("sasl", "ssl")


async def survey(
    loaded: LoadedPipeline,
    plan: Plan,
    target: StartTarget | StorageError,
    patience_s: float,
    *,
    deep: bool = False,
    known: Iterable[Finding] = (),
) -> list[Finding]:
    """Survey the deployment. The findings are in the order of CHECKS and include those already `known`.

    `target` is an error if the checkpoint storage cannot be opened. The survey waits for brokers for up to
    `patience_s`. A start does not wait for the facts of a `deep` survey: rights that are tested, transactions, clocks,
    this machine.
    """
    findings = [*known, *await asyncio.to_thread(find_runtime_problems, loaded)]
    journal, trouble = await _read_journal(loaded, target, findings)
    findings += await check_registrations(loaded, plan, patience_s)
    findings += await _survey_clusters(loaded, plan, target, journal, patience_s, deep=deep)
    if deep:
        directory, opener = str(loaded.settings.checkpoints.directory), derive_opener(loaded.settings)
        machine = await asyncio.to_thread(read_machine, directory, opener, trouble)
        findings += judge_machine(loaded.settings, plan, machine)
    elif trouble is not None:
        findings.append(judge_storage_error(trouble))
    if not any(one.check == "start" for one in findings):
        findings.append(Finding("start", Severity.OK, "nothing prevents it"))
    return sorted(findings, key=lambda one: _ORDER[one.check])


async def _read_journal(
    loaded: LoadedPipeline, target: StartTarget | StorageError, findings: list[Finding]
) -> tuple[JournalState | None, StorageError | None]:
    """Test the storage, then read the journal. Return the journal, if it could be read, and the error of the test."""
    if isinstance(target, StorageError):
        return None, target
    try:
        await target.try_storage()
    except StorageError as error:
        return None, error
    try:
        return await target.read_journal(), None
    except TidegateError as error:
        findings += judge_error(loaded, error)
        return None, None


# -- the clusters ------------------------------------------------------------------------------------------------------


async def _survey_clusters(
    loaded: LoadedPipeline,
    plan: Plan,
    target: StartTarget | StorageError,
    journal: JournalState | None,
    patience_s: float,
    *,
    deep: bool,
) -> list[Finding]:
    """Survey all clusters at once. One that does not answer hides nothing of the others."""
    await asyncio.to_thread(import_client)
    names = list(derive_clusters(loaded.settings))
    answers = await asyncio.gather(*(_ask_brokers(loaded, plan, name, patience_s) for name in names))
    findings: list[Finding] = []
    clusters: dict[ClusterName, ClusterFacts] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, Finding):
            findings.append(answer)
        elif any(one.lacking for one in answer.versions):
            findings += _of_cluster(name, judge_versions(answer))
        else:
            clusters[name] = answer
    findings += judge_start(loaded, plan, clusters, journal)
    findings += await asyncio.to_thread(lambda: list(_try_other_logins(loaded, plan, clusters, patience_s)))
    if not isinstance(target, StorageError) and journal is not None and _are_comparable(names, clusters):
        try:
            findings += judge_comparison(await target.compare(plan))
        except TidegateError as error:
            findings += judge_error(loaded, error)
    if deep:
        asked = [_ask_for_details(loaded, plan, facts, patience_s, findings) for facts in clusters.values()]
        clusters = dict(zip(clusters, await asyncio.gather(*asked), strict=True))
    return [*findings, *_judge_clusters(loaded, plan, clusters, "" if journal is None else journal.journal)]


def _are_comparable(names: Sequence[ClusterName], clusters: Mapping[ClusterName, ClusterFacts]) -> bool:
    """Return whether what a start would restore can be compared; otherwise a finding says what prevents it."""
    ids = {one.cluster_id for one in clusters.values()}
    return len(ids) == len(names) and all(one.facts for each in clusters.values() for one in each.topics.values())


def _judge_clusters(
    loaded: LoadedPipeline, plan: Plan, clusters: Mapping[ClusterName, ClusterFacts], journal: str
) -> Iterator[Finding]:
    uses = [use for use in derive_uses(loaded, plan) if use.cluster in clusters]
    inputs = [clusters[use.cluster].topics[use.topic].settings for use in uses if not use.written]
    properties = derive_clusters(loaded.settings)
    for name, facts in clusters.items():
        kafka = properties[name]
        secured = kafka.get("security.protocol", "plaintext").lower().startswith(_SECURED)
        commands, own = Commands(derive_servers(kafka), secured), [use for use in uses if use.cluster == name]
        yield from _of_cluster(name, judge_cluster(loaded.settings, facts, commands, journal))
        yield from _of_cluster(name, judge_topics(loaded.settings, own, facts, commands, inputs))


def _of_cluster(name: ClusterName, findings: Iterable[Finding]) -> Iterator[Finding]:
    return (msgspec.structs.replace(one, cluster=name) for one in findings)


async def _ask_brokers(
    loaded: LoadedPipeline, plan: Plan, cluster: ClusterName, patience_s: float
) -> ClusterFacts | Finding:
    """Ask once, and log the obstacle while waiting. Return why there is no answer as a finding."""
    asking = asyncio.create_task(asyncio.to_thread(read_cluster, loaded, plan, cluster, patience_s))
    done, _ = await asyncio.wait({asking}, timeout=QUIET_S)
    if not done:
        try:
            obstacle = await asyncio.to_thread(diagnose, derive_clusters(loaded.settings)[cluster], STEP_S)
        except KafkaRefused:
            obstacle = None  # caused by a property, which makes `asking` fail as well
        if obstacle is not None and not obstacle.final:
            named = f" of {cluster}" if loaded.settings.clusters else ""
            text, remedy = obstacle.text, obstacle.remedy
            logger.warning("waiting for a broker%s, %g s at most: %s; %s", named, patience_s, text, remedy)
    try:
        return await asking
    except (BrokerUnavailable, KafkaRefused) as error:
        return judge_broker_error(loaded, error, cluster)


async def _ask_for_details(
    loaded: LoadedPipeline, plan: Plan, facts: ClusterFacts, patience_s: float, findings: list[Finding]
) -> ClusterFacts:
    from kafka.errors import KafkaError

    try:
        return await asyncio.to_thread(read_details, loaded, plan, facts, patience_s)
    except (TidegateError, KafkaError, OSError) as error:
        message = error.message if isinstance(error, TidegateError) else repr(error)
        code = 2 if isinstance(error, TidegateError) and error.exit_code != 1 else 1
        value = f"the brokers stopped answering: {message}"
        remedy = "see the brokers' log"
        finding = Finding("brokers", Severity.PROBLEM, value, "", remedy, facts.servers, exit_code=code)
        findings += _of_cluster(facts.name, [finding])
        return facts


def _try_other_logins(
    loaded: LoadedPipeline, plan: Plan, clusters: Collection[ClusterName], patience_s: float
) -> Iterator[Finding]:
    """Connect as every source and sink whose login differs from that of its cluster."""
    logins = {name: derive_login(kafka) for name, kafka in derive_clusters(loaded.settings).items()}
    owners = [("sources", one.name, one.cluster, one.kafka) for one in plan.operators(SourceOperator)]
    sinks = [one for one in plan.operators(SinkOperator) if one.name != DEAD_LETTERS]
    owners += [("sinks", one.name, one.cluster, one.kafka) for one in sinks]
    for kind, name, cluster, kafka in owners:
        login = derive_login(kafka)
        if cluster not in clusters or login == logins[cluster]:
            continue
        try:
            connect(login, patience_s).close()
        except (BrokerUnavailable, KafkaRefused) as error:
            yield judge_broker_error(loaded, error, cluster, (kind, name))
