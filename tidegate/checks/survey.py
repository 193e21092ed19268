"""The survey of a deployment: facts are collected, then judged into findings.

`run`, `validate --connect` and `doctor` share the findings. `run` fails on those that prevent a start and logs the
others, `validate` prints both as problems of the file, `doctor` prints all. The survey changes nothing and does not
affect a running daemon. Any condition that can prevent a start and can be determined without Spark belongs here, or in
the preflight of a recovery, which `StartTarget.compare` runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import Final

from tidegate.checks.cluster import read_cluster
from tidegate.checks.details import read_details
from tidegate.checks.facts import SERVERS, ClusterFacts, StartTarget
from tidegate.checks.findings import CHECKS, Finding, Severity
from tidegate.checks.judge_cluster import Commands, judge_cluster, judge_versions
from tidegate.checks.judge_machine import judge_machine, judge_storage_error
from tidegate.checks.judge_start import judge_broker_error, judge_comparison, judge_error, judge_start
from tidegate.checks.judge_topics import judge_topics
from tidegate.checks.machine import read_machine
from tidegate.checks.registrations import check_registrations
from tidegate.checks.runtime_check import find_runtime_problems
from tidegate.checks.uses import derive_uses
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.config.storages import derive_opener
from tidegate.coordinator.journal_state import JournalState
from tidegate.errors import TidegateError
from tidegate.kafka.client_properties import derive_login, derive_servers
from tidegate.kafka.connecting import STEP_S, connect, import_client
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
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
    findings += await _survey_cluster(loaded, plan, target, journal, patience_s, deep=deep)
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


# -- the brokers -------------------------------------------------------------------------------------------------------


async def _survey_cluster(
    loaded: LoadedPipeline,
    plan: Plan,
    target: StartTarget | StorageError,
    journal: JournalState | None,
    patience_s: float,
    *,
    deep: bool,
) -> list[Finding]:
    try:
        facts = await _ask_brokers(loaded, plan, patience_s)
    except (BrokerUnavailable, KafkaRefused) as error:
        return [judge_broker_error(loaded, error)]
    if any(one.lacking for one in facts.versions):
        return list(judge_versions(facts))
    findings = list(judge_start(loaded, plan, facts, journal))
    findings += await asyncio.to_thread(lambda: list(_try_other_logins(loaded, plan, patience_s)))
    if not isinstance(target, StorageError) and journal is not None and all(one.facts for one in facts.topics.values()):
        try:
            findings += judge_comparison(await target.compare(plan))
        except TidegateError as error:
            findings += judge_error(loaded, error)
    if deep:
        facts = await _ask_for_details(loaded, plan, facts, patience_s, findings)
    kafka = reveal(loaded.settings.kafka)
    secured = kafka.get("security.protocol", "plaintext").lower().startswith(_SECURED)
    commands = Commands(derive_servers(kafka), secured)
    findings += judge_cluster(loaded.settings, facts, commands, "" if journal is None else journal.journal)
    findings += judge_topics(loaded.settings, derive_uses(loaded, plan), facts, commands)
    return findings


async def _ask_brokers(loaded: LoadedPipeline, plan: Plan, patience_s: float) -> ClusterFacts:
    """Ask once, and log the obstacle while waiting. Raises BrokerUnavailable, KafkaRefused."""
    await asyncio.to_thread(import_client)
    asking = asyncio.create_task(asyncio.to_thread(read_cluster, loaded, plan, patience_s))
    done, _ = await asyncio.wait({asking}, timeout=QUIET_S)
    if not done:
        try:
            obstacle = await asyncio.to_thread(diagnose, reveal(loaded.settings.kafka), STEP_S)
        except KafkaRefused:
            obstacle = None  # caused by a property, which makes `asking` fail as well
        if obstacle is not None and not obstacle.final:
            logger.warning("waiting for a broker, %g s at most: %s; %s", patience_s, obstacle.text, obstacle.remedy)
    return await asking


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
        remedy = "look at the brokers' log"
        findings.append(Finding("brokers", Severity.PROBLEM, value, "", remedy, SERVERS, exit_code=code))
        return facts


def _try_other_logins(loaded: LoadedPipeline, plan: Plan, patience_s: float) -> Iterator[Finding]:
    """Connect as every source and sink whose login differs from that of the top-level `kafka:`."""
    top = derive_login(reveal(loaded.settings.kafka))
    owners = [("sources", one.name, one.kafka) for one in plan.operators(SourceOperator)]
    owners += [("sinks", one.name, one.kafka) for one in plan.operators(SinkOperator) if one.name != DEAD_LETTERS]
    for kind, name, kafka in owners:
        login = derive_login(kafka)
        if login == top:
            continue
        try:
            connect(login, patience_s).close()
        except (BrokerUnavailable, KafkaRefused) as error:
            yield judge_broker_error(loaded, error, (kind, name))
