"""What a start would be refused for, found out before anything is started: by `run`, and by `validate --connect`.

Nothing is changed by asking, and a daemon that runs is not disturbed. Whatever refuses a start for a reason that can be
known without Spark belongs here, or into `looking.look_first`, which is asked from here as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from tidegate.config.load import LoadedPipeline
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import merge_positions
from tidegate.daemon.choosing import StartOptions
from tidegate.daemon.looking import look_first
from tidegate.daemon.start.registrations import check_registrations
from tidegate.daemon.start.start_problems import StartProblem, StartRefused
from tidegate.daemon.start.survey import Cluster, read_cluster
from tidegate.daemon.start.survey_problems import derive_problems
from tidegate.daemon.start.unfit_state import refuse_unfit_state
from tidegate.daemon.stores import Stores
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.kafka.client_properties import derive_login
from tidegate.kafka.connecting import STEP_S, connect, import_client
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, SinkRefused
from tidegate.operators.kinds.dead_letters import DEAD_LETTERS
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.settings.base import Path
from tidegate.settings.secrets import reveal
from tidegate.storage.base import Storage, StorageError
from tidegate.storage.open import open_storage
from tidegate.storage.problems import is_lasting

logger = logging.getLogger(__name__)

QUIET_S: Final = 1.0
"""How long nothing is said about a broker that does not answer."""
_DIRECTORY: Final = ("checkpoints", "directory")


def open_checkpoints(loaded: LoadedPipeline) -> Storage:
    """The checkpoint directory. Raises StartRefused."""
    try:
        return open_storage(str(loaded.settings.checkpoints.directory))
    except StorageError as error:
        raise StartRefused([_storage_problem(loaded, error)]) from error


async def check_start(
    loaded: LoadedPipeline, plan: Plan, stores: Stores | None, options: StartOptions, patience_s: float
) -> list[StartProblem]:
    """Everything that stands against a start now, and warnings. `stores` is None where they cannot be opened.

    Brokers are waited for so long; a warning in the log says so. Opens `stores.kafka`, which the caller closes.
    """
    problems: list[StartProblem] = []
    state = None
    if stores is not None:
        try:
            await stores.in_journal_thread(stores.storage.probe)
            state = await stores.in_journal_thread(stores.journal.read)
        except TidegateError as error:
            problems.append(_journal_problem(loaded, error))
    problems += await check_registrations(loaded, plan, patience_s)
    cluster = await _survey(loaded, plan, patience_s, problems)
    if cluster is None:
        return problems
    problems += derive_problems(loaded, plan, cluster, _placed(state))
    problems += await asyncio.to_thread(_other_logins, loaded, plan, patience_s)
    known = all(seen.facts is not None for seen in cluster.topics.values())
    if stores is not None and state is not None and known:
        problems += await _compare(loaded, plan, stores, options)
    return problems


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
    except (BrokerUnavailable, SinkRefused) as error:
        problems.append(_broker_problem(loaded, error))
        return None


async def _explain_silence(kafka: dict[str, str], patience_s: float) -> None:
    """Say what is waited for."""
    try:
        obstacle = await asyncio.to_thread(diagnose, kafka, STEP_S)
    except SinkRefused:
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
        except (BrokerUnavailable, SinkRefused) as error:
            problems.append(_broker_problem(loaded, error, (kind, name)))
    return problems


def _broker_problem(loaded: LoadedPipeline, error: BrokerUnavailable | SinkRefused, owner: Path = ()) -> StartProblem:
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


async def _compare(loaded: LoadedPipeline, plan: Plan, stores: Stores, options: StartOptions) -> Sequence[StartProblem]:
    """The pipeline as it is now against what its checkpoints hold."""
    try:
        await stores.kafka.open()
        look = await look_first(plan, stores, options, first=True, verify=False)
        newest = look.before.newest_checkpoint
        if newest is not None and options.restore is None:
            await stores.in_journal_thread(lambda: refuse_unfit_state(stores.storage, plan, newest))
    except TidegateError as error:
        return [_journal_problem(loaded, error)]
    return []


def _placed(state: JournalState | None) -> Collection[OperatorName]:
    """Sources whose positions are fixed."""
    newest = None if state is None else state.newest_checkpoint
    return () if newest is None else merge_positions(newest.positions).keys()


def _journal_problem(loaded: LoadedPipeline, error: TidegateError) -> StartProblem:
    if isinstance(error, StorageError):
        return _storage_problem(loaded, error)
    if isinstance(error, BrokerUnavailable | SinkRefused):
        return _broker_problem(loaded, error)
    return StartProblem(loaded.problem(_place(loaded, error), error.message), error.exit_code, error)


def _storage_problem(loaded: LoadedPipeline, error: StorageError) -> StartProblem:
    """Its exit code is 2 where starting again would meet the same."""
    lasting = error.exit_code == 1 and is_lasting(error)
    problem = loaded.problem(_place(loaded, error), error.message)
    return StartProblem(problem, 2 if lasting else error.exit_code, error)


def _place(loaded: LoadedPipeline, error: TidegateError) -> Path:
    """The checkpoint directory, unless it is about another one: a savepoint that the command line names."""
    directory = str(loaded.settings.checkpoints.directory)
    return _DIRECTORY if str(error.fields.get("location", directory)) == directory else ()
