"""What a start would be refused for, found out before anything is started: by `run`, and by `validate --connect`.

Nothing is changed by asking, and a daemon that runs is not disturbed. Whatever refuses a start for a reason that can be
known without Spark belongs here, or into `daemon/looking.py`, which its `target` asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from tidegate.checks.cluster import Cluster, read_cluster
from tidegate.checks.examine import examine, refuse_findings
from tidegate.checks.judge_start import derive_problems
from tidegate.checks.registrations import check_registrations
from tidegate.checks.runtime_check import find_runtime_problems
from tidegate.checks.start_problems import StartLook, StartProblem
from tidegate.checks.start_target import StartTarget
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import RestoreRefused, merge_positions
from tidegate.coordinator.types import LostRange
from tidegate.coordinator.upgrade import Refusal
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.kafka.client_properties import derive_login
from tidegate.kafka.connecting import STEP_S, connect, import_client
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.settings.base import Path
from tidegate.settings.secrets import reveal
from tidegate.sources.beginning import AHEAD, AHEAD_REMEDY
from tidegate.sources.positions import describe_out_of_range
from tidegate.storage.base import StorageError
from tidegate.storage.problems import is_lasting

logger = logging.getLogger(__name__)

QUIET_S: Final = 1.0
"""How long nothing is said about a broker that does not answer."""
_DIRECTORY: Final = ("checkpoints", "directory")


async def check_start(
    loaded: LoadedPipeline, plan: Plan, target: StartTarget | StorageError, patience_s: float
) -> list[StartProblem]:
    """Everything that stands against a start now, and warnings; with `strict: true` also what `tidegate doctor` calls a
    problem. See `look_at_start`.
    """
    look = await look_at_start(loaded, plan, target, patience_s)
    if not loaded.settings.strict or look.cluster is None:
        return look.problems
    told = {one.problem.message for one in look.problems}
    findings = [
        one
        for one in await examine(loaded, plan, look, patience_s)
        if one.found not in told and not (isinstance(target, StorageError) and one.check == "checkpoint-directory")
    ]
    return [*(one for one in look.problems if one.refuses or not one.examined), *refuse_findings(loaded, findings)]


async def look_at_start(
    loaded: LoadedPipeline, plan: Plan, target: StartTarget | StorageError, patience_s: float
) -> StartLook:
    """What is seen before a start. `target` is the error where the storage cannot be opened.

    Brokers are waited for so long; a warning in the log says so.
    """
    problems = await asyncio.to_thread(find_runtime_problems, loaded)
    state = trouble = None
    if isinstance(target, StorageError):
        problems.append(storage_problem(loaded, target))
    else:
        state, trouble = await _read_journal(loaded, target, problems)
    problems += await check_registrations(loaded, plan, patience_s)
    cluster = await _survey(loaded, plan, patience_s, problems)
    if cluster is None:
        return StartLook(problems, None, state, trouble)
    problems += derive_problems(loaded, plan, cluster, _placed(plan, state))
    problems += await asyncio.to_thread(_other_logins, loaded, plan, patience_s)
    known = all(seen.facts is not None for seen in cluster.topics.values())
    if not isinstance(target, StorageError) and state is not None and known:
        problems += await _compare(loaded, plan, target)
    return StartLook(problems, cluster, state, trouble)


# -- the brokers -------------------------------------------------------------------------------------------------------


async def _survey(
    loaded: LoadedPipeline, plan: Plan, patience_s: float, problems: list[StartProblem]
) -> Cluster | None:
    kafka = reveal(loaded.settings.kafka)
    await asyncio.to_thread(import_client)
    asking = asyncio.create_task(asyncio.to_thread(read_cluster, kafka, plan, patience_s))
    done, _ = await asyncio.wait({asking}, timeout=QUIET_S)
    if not done:
        await _explain_silence(kafka, patience_s)
    try:
        return await asking
    except (BrokerUnavailable, KafkaRefused) as error:
        problems.append(_broker_problem(loaded, error))
        return None


async def _explain_silence(kafka: dict[str, str], patience_s: float) -> None:
    """Say what is waited for."""
    try:
        obstacle = await asyncio.to_thread(diagnose, kafka, STEP_S)
    except KafkaRefused:
        return  # a property: it is reported at once
    if obstacle is not None and not obstacle.final:
        logger.warning("waiting for a broker, %g s at most: %s; %s", patience_s, obstacle.text, obstacle.remedy)


def _other_logins(loaded: LoadedPipeline, plan: Plan, patience_s: float) -> list[StartProblem]:
    """Sources and sinks that go in another way than `kafka:` at the top says."""
    top, problems = derive_login(reveal(loaded.settings.kafka)), []
    places = [("sources", one.name, one.kafka) for one in plan.operators(SourceOperator)]
    places += [("sinks", one.name, one.kafka) for one in plan.operators(SinkOperator) if one.name != DEAD_LETTERS]
    for kind, name, kafka in places:
        login = derive_login(kafka)
        if login == top:
            continue
        try:
            connect(login, patience_s).close()
        except (BrokerUnavailable, KafkaRefused) as error:
            problems.append(_broker_problem(loaded, error, (kind, name)))
    return problems


def _broker_problem(loaded: LoadedPipeline, error: BrokerUnavailable | KafkaRefused, owner: Path = ()) -> StartProblem:
    name = str(error.fields.get("property", ""))
    if owner:
        path: Path = (*owner, "kafka", name)
    else:
        path = ("kafka", name) if name in loaded.settings.kafka else _server_path(loaded)
    message = str(error.fields.get("text", error.message))
    problem = loaded.problem(path, message, str(error.fields.get("remedy", "")))
    return StartProblem(problem, error.exit_code, error)


def _server_path(loaded: LoadedPipeline) -> Path:
    given = [name for name in ("bootstrap.servers", "metadata.broker.list") if name in loaded.settings.kafka]
    return ("kafka", *given[:1])


# -- the journal -------------------------------------------------------------------------------------------------------


async def _read_journal(
    loaded: LoadedPipeline, target: StartTarget, problems: list[StartProblem]
) -> tuple[JournalState | None, StorageError | None]:
    """What it says, and what a trial of its storage has ended with; why there is no answer goes to `problems`."""
    try:
        await target.try_storage()
    except StorageError as error:
        problems.append(storage_problem(loaded, error))
        return None, error
    try:
        return await target.read_journal(), None
    except TidegateError as error:
        problems.append(_journal_problem(loaded, error))
        return None, None


async def _compare(loaded: LoadedPipeline, plan: Plan, target: StartTarget) -> Sequence[StartProblem]:
    """The pipeline as it is now against what its checkpoints hold, or what takes their place."""
    try:
        found = await target.compare(plan)
    except RestoreRefused as error:
        return [_refused_upgrade(loaded, error, one) for one in error.refusals] or [_journal_problem(loaded, error)]
    except TidegateError as error:
        return [_journal_problem(loaded, error)]
    remedy = "or restore a newer checkpoint or savepoint" if found.goes_back else ""
    lost = [_lost_problem(loaded, one, remedy) for one in found.lost]
    return [*lost, *(_ahead_problem(loaded, one) for one in found.ahead)]


def _lost_problem(loaded: LoadedPipeline, lost: LostRange, remedy: str) -> StartProblem:
    """A slot would stop at it, as soon as Spark has brought it up, and what a start goes back to is the newest then."""
    message = describe_out_of_range(lost.partition, lost.from_offset, lost.to_offset, lost.to_offset)
    return StartProblem(loaded.problem(("sources", lost.source), message, remedy), exit_code=4)


def _ahead_problem(loaded: LoadedPipeline, source: SourceOperator) -> StartProblem:
    path: Path = ("sources", source.name, "until")
    return StartProblem(loaded.problem(path, f"{source.until} {AHEAD}", AHEAD_REMEDY))


def _refused_upgrade(loaded: LoadedPipeline, error: RestoreRefused, refusal: Refusal) -> StartProblem:
    return StartProblem(place_refusal(loaded, refusal), error.exit_code, error)


def place_refusal(loaded: LoadedPipeline, refusal: Refusal) -> Problem:
    """At the source or step that it is about; at the checkpoint directory where the file does not have it."""
    return loaded.problem(_place_of(loaded, refusal.name), refusal.told, refusal.remedy)


def _place_of(loaded: LoadedPipeline, name: object) -> Path:
    """Of a source or step; the checkpoint directory where the file does not have it."""
    if name in loaded.settings.sources:
        return ("sources", str(name))
    for index, step in zip(loaded.step_indices, loaded.settings.steps, strict=True):
        if step.name == name:
            return ("steps", index, "name")
    return _DIRECTORY


def _placed(plan: Plan, state: JournalState | None) -> Collection[OperatorName]:
    """Sources whose positions are fixed, by the names of now."""
    newest = None if state is None else state.newest_checkpoint
    known = set() if newest is None else set(merge_positions(newest.positions))
    return known | {name for name, words in plan.words.items() if words.was in known}


def _journal_problem(loaded: LoadedPipeline, error: TidegateError) -> StartProblem:
    if isinstance(error, StorageError):
        return storage_problem(loaded, error)
    if isinstance(error, BrokerUnavailable | KafkaRefused):
        return _broker_problem(loaded, error)
    return StartProblem(loaded.problem(_place(loaded, error), error.message), error.exit_code, error)


def storage_problem(loaded: LoadedPipeline, error: StorageError) -> StartProblem:
    """Its exit code is 2 where starting again would meet the same."""
    lasting = error.exit_code == 1 and is_lasting(error)
    problem = loaded.problem(_place(loaded, error), error.message)
    return StartProblem(problem, 2 if lasting else error.exit_code, error)


def _place(loaded: LoadedPipeline, error: TidegateError) -> Path:
    """The step whose state it is, else the checkpoint directory, unless it is about another one: a savepoint that the
    command line names.
    """
    directory = str(loaded.settings.checkpoints.directory)
    if str(error.fields.get("location", directory)) != directory:
        return ()
    return _place_of(loaded, error.fields.get("operator"))
