"""The exit code of a start with `strict: true`, without brokers."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from kafka.errors import KafkaTimeoutError

from tests.checks.deployments import MACHINE, SOUND
from tests.daemon.small_pipeline import pipeline
from tidegate.checks import survey
from tidegate.checks.facts import ClusterFacts, Comparison, MachineFacts
from tidegate.checks.findings import Finding, derive_exit_code, find_preventing
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.coordinator.journal_state import EMPTY
from tidegate.errors import TidegateError
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.inspection import BrokerVersion
from tidegate.plan.build import build_plan
from tidegate.storage.base import StorageError, describe_failure

SOUND_TOPICS = ClusterFacts({"in": SOUND, "out": SOUND})


def returning(value: object) -> Callable[..., Any]:
    return lambda *_what, **_more: value


def awaiting(value: object) -> Callable[..., Awaitable[Any]]:
    async def answer(*_what: object, **_more: object) -> object:
        return value

    return answer


def strict() -> LoadedPipeline:
    loaded = parse_pipeline(f"{pipeline().source}strict: true\n", "p.yaml", {})
    assert loaded.settings.strict
    return loaded


def problems_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    storage: StorageError | None = None,
    openable: bool = True,
    brokers: Exception | None = None,
    machine: MachineFacts = MACHINE,
    cluster: ClusterFacts = SOUND_TOPICS,
) -> list[Finding]:
    """Of a start for which all else is in order."""
    loaded = strict()

    async def probe() -> None:
        if storage is not None:
            raise storage

    def read_machine(_directory: str, _opener: object, known: StorageError | None) -> MachineFacts:
        return msgspec.structs.replace(machine, storage_trouble=known if openable else storage)

    def read_cluster_facts(*_what: object) -> None:
        if brokers is not None:
            raise brokers

    def read_details(*what: object) -> object:
        if brokers is not None:
            raise brokers
        return what[2]

    for name, answer in (
        ("find_runtime_problems", returning([])),
        ("check_registrations", awaiting([])),
        ("read_cluster", returning(cluster)),
        ("judge_start", returning([])),
        ("_try_other_logins", returning([])),
        ("read_machine", read_machine),
        ("read_details", read_details),
        ("judge_cluster", returning([])),
        ("judge_topics", returning([])),
    ):
        monkeypatch.setattr(survey, name, answer)
    target = storage
    if openable:
        asked = {"try_storage": probe, "read_journal": awaiting(EMPTY), "compare": awaiting(Comparison())}
        target = cast("Any", SimpleNamespace(**asked))
    found = survey.survey(loaded, build_plan(loaded), cast("Any", target), 1.0, deep=True)
    return find_preventing(asyncio.run(found), strict=True)


def failing(number: int) -> StorageError:
    return describe_failure("/data", "write", "probe/1", OSError(number, os.strerror(number)))


def test_a_start_that_nothing_stands_against_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems_of(monkeypatch) == []


@pytest.mark.parametrize(("number", "code"), [(errno.ESTALE, 1), (errno.EIO, 1), (errno.ENOSPC, 1), (errno.EACCES, 2)])
def test_a_directory_that_fails_is_told_once_and_with_the_code_that_it_has_elsewhere(
    monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    """With `strict` a hiccup of the network file system kept a pipeline down until a person came."""
    found = problems_of(monkeypatch, storage=failing(number))
    assert len(found) == 1
    assert derive_exit_code(found) == code


def test_a_directory_that_could_not_be_opened_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(problems_of(monkeypatch, storage=failing(errno.EIO), openable=False)) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokerUnavailable("no answer"), 1), (KafkaTimeoutError(), 1), (OSError("reset"), 1), (KafkaRefused("login"), 2)],
)
def test_brokers_that_stop_answering_may_come_back(
    monkeypatch: pytest.MonkeyPatch, error: TidegateError | OSError, code: int
) -> None:
    (found,) = problems_of(monkeypatch, brokers=error)
    assert "the brokers stopped answering" in found.value
    assert derive_exit_code([found]) == code


def test_of_a_cluster_with_an_old_broker_nothing_else_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not answer would be reported once more by whoever asks."""
    old = BrokerVersion(2, "2.8", ("DescribeTransactions",))
    (found,) = problems_of(monkeypatch, cluster=ClusterFacts({}, versions=(BrokerVersion(1, "4.3"), old)))
    assert (found.check, found.prevents_start, found.exit_code) == ("broker-version", True, 2)


def test_a_disk_that_another_program_has_filled_may_be_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    room = msgspec.structs.replace(MACHINE.rooms[0], free_bytes=90 << 20)
    found = problems_of(monkeypatch, machine=msgspec.structs.replace(MACHINE, rooms=(room, MACHINE.rooms[1])))
    assert [one.place for one in found] == [("checkpoints", "directory")]
    assert derive_exit_code(found) == 1


def test_what_only_a_person_can_mend_is_2_next_to_what_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = msgspec.structs.replace(MACHINE, open_files=1)
    assert derive_exit_code(problems_of(monkeypatch, machine=machine, brokers=BrokerUnavailable("no answer"))) == 2
