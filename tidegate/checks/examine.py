"""The whole examination: facts are collected, then judged. For `tidegate doctor`, and starts with `strict: true`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from tidegate.checks.details import read_cluster_facts
from tidegate.checks.findings import CHECKS, Finding, Level
from tidegate.checks.judge_cluster import Commands, judge_cluster
from tidegate.checks.judge_machine import judge_machine
from tidegate.checks.judge_topics import judge_topics
from tidegate.checks.machine import read_machine
from tidegate.checks.start_problems import StartLook, StartProblem
from tidegate.checks.uses import derive_uses
from tidegate.config.load import LoadedPipeline
from tidegate.config.storages import derive_opener
from tidegate.errors import TidegateError
from tidegate.kafka.client_properties import derive_servers
from tidegate.plan.graph import Plan
from tidegate.settings.secrets import reveal

_SECURED: Final = ("sasl", "ssl")
_ORDER: Final = {name: place for place, name in enumerate(CHECKS)}


async def examine(loaded: LoadedPipeline, plan: Plan, look: StartLook, patience_s: float) -> list[Finding]:
    """Everything but `start`, which is judged by who has looked."""
    findings: list[Finding] = []
    settings = loaded.settings
    if look.cluster is not None:
        findings += await _examine_cluster(loaded, plan, look, patience_s)
    machine = await asyncio.to_thread(
        read_machine, str(settings.checkpoints.directory), derive_opener(settings), look.storage_trouble
    )
    findings += judge_machine(settings, plan, machine)
    return sorted(findings, key=lambda one: _ORDER[one.check])


async def _examine_cluster(loaded: LoadedPipeline, plan: Plan, look: StartLook, patience_s: float) -> list[Finding]:
    from kafka.errors import KafkaError

    assert look.cluster is not None
    settings, kafka = loaded.settings, reveal(loaded.settings.kafka)
    commands = Commands(
        derive_servers(kafka),
        kafka.get("security.protocol", "plaintext").lower().startswith(_SECURED),
    )
    try:
        facts = await asyncio.to_thread(read_cluster_facts, loaded, plan, look.cluster, patience_s)
    except (TidegateError, KafkaError, OSError) as error:
        message = error.message if isinstance(error, TidegateError) else repr(error)
        found = f"the brokers stopped answering: {message}"
        passing = not isinstance(error, TidegateError) or error.exit_code == 1
        mend = "look at the brokers' log"
        return [Finding("brokers", Level.PROBLEM, found, "answers", mend, ("kafka",), passing=passing)]
    journal = "" if look.state is None else look.state.journal
    return [
        *judge_cluster(settings, facts, commands, journal),
        *judge_topics(settings, derive_uses(loaded, plan), facts, commands),
    ]


def judge_start(problems: Sequence[StartProblem], findings: Collection[Finding] = ()) -> list[Finding]:
    """What a start would say, without what is among the findings of other checks."""
    known = {one.found for one in findings}
    found = [
        Finding(
            "start",
            Level.PROBLEM if one.refuses else Level.WARNING,
            one.problem.message,
            mend=one.problem.remedy,
            subject=one.problem.path,
        )
        for one in problems
        if not one.examined and one.problem.message not in known
    ]
    return found or [Finding("start", Level.OK, "nothing stands against it", "nothing")]


def refuse_findings(loaded: LoadedPipeline, findings: list[Finding]) -> list[StartProblem]:
    """For `strict: true`: each problem as one that refuses a start, for good only where it cannot pass."""
    return [
        StartProblem(
            loaded.problem(one.path, f"{one.place}: {one.found}; should be: {one.wanted}", one.mend),
            1 if one.passing else 2,
        )
        for one in findings
        if one.level is Level.PROBLEM
    ]
