"""What is said of the cluster as a whole, one change of a sound deployment at a time."""

from __future__ import annotations

import msgspec
import pytest

from tests.checks.deployments import BROKER, COMMANDS, RIGHT, SERVERS, VERSIONS, bad, of_cluster, only
from tests.daemon.small_pipeline import pipeline
from tidegate.checks.facts import PRINCIPAL, ClusterFacts, Need, OtherWriter, Wait, derive_needs, derive_unattended_ms
from tidegate.checks.findings import CHECKS, Finding, Severity
from tidegate.checks.judge_cluster import Commands, judge_rights
from tidegate.ids import MAIN_CLUSTER, Attempt, OperatorName, ProducerId, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.facts import CoordinatorState, OpenBrokerTransaction, TransactionListing
from tidegate.kafka.inspection import BrokerVersion, ClockReading, derive_clock
from tidegate.plan.build import build_plan
from tidegate.sinks.hanging_transactions import HangingTransaction, HangingVerdict
from tidegate.sinks.naming import TransactionalName

UNKNOWN, WARNING, PROBLEM = Severity.UNKNOWN, Severity.WARNING, Severity.PROBLEM
UNATTENDED_MS = derive_unattended_ms(pipeline().settings)
PART = TopicPartition("out", 3)


def listing(name: str, state: CoordinatorState = CoordinatorState.COMPLETE_COMMIT) -> TransactionListing:
    return TransactionListing(TransactionalId(name), 7, state)


def own(journal: str) -> str:
    """A transactional id of the pipeline `check`."""
    return TransactionalName("check", OperatorName("out"), SlotIndex(0), Attempt(1), journal, 0).transactional_id


def hanging(verdict: HangingVerdict, owner: str | None = "other") -> HangingTransaction:
    known = None if owner is None else TransactionalId(owner)
    return HangingTransaction(OpenBrokerTransaction(PART, ProducerId(7, 0), 42, 0), verdict, known, 0)


def test_a_sound_cluster_is_ok_in_every_check() -> None:
    findings = of_cluster()
    assert bad(findings) == []
    assert [one.check for one in findings] == [name for name in CHECKS if name in {one.check for one in findings}]


def test_versions_and_brokers() -> None:
    old = BrokerVersion(2, "2.8", ("DescribeTransactions",))
    one = only(of_cluster(versions=(*VERSIONS[:1], old)))
    assert (one.check, one.severity, one.place, one.prevents_start) == ("broker-version", PROBLEM, SERVERS, True)
    assert one.value == "broker 2 is Kafka 2.8: it does not answer DescribeTransactions"
    mixed = only(of_cluster(versions=(BrokerVersion(1, "4.2"), BrokerVersion(2, "4.3"))))
    assert (mixed.severity, mixed.value) == (WARNING, "4.2 and 4.3")
    assert (only(of_cluster(brokers=1)).check, only(of_cluster(brokers=1)).severity) == ("brokers", WARNING)


@pytest.mark.parametrize(
    ("reading", "level"),
    [
        (ClockReading(5_000, 0), Severity.OK),
        (ClockReading(5_001, 0), WARNING),
        (ClockReading(-5_001, 0), WARNING),
        (ClockReading(5_400, 400), Severity.OK),
        (None, UNKNOWN),
    ],
)
def test_a_clock_is_wrong_only_beyond_what_the_reading_is_uncertain_by(
    reading: ClockReading | None, level: Severity
) -> None:
    (one,) = [one for one in of_cluster(clock=reading) if one.check == "clock"]
    assert one.severity is level


def test_the_controllers_clock_is_read_from_the_middle_of_the_question() -> None:
    voters = [{"replica_id": 2, "last_caught_up_timestamp": 400}, {"replica_id": 1, "last_caught_up_timestamp": 2_000}]
    answer = {"topics": [{"partitions": [{"leader_id": 1, "current_voters": voters}]}]}
    assert derive_clock(answer, 1_000, 1_101) == ClockReading(2_000 - 1_050, 51)
    voters[1]["last_caught_up_timestamp"] = -1  # version 0 of the answer does not have it
    assert derive_clock(answer, 1_000, 1_100) is None


def test_the_transaction_timeout_against_the_brokers_limit() -> None:
    one = only(of_cluster(timeout="20m"))
    assert (one.check, one.severity, one.prevents_start) == ("transaction-timeout", PROBLEM, True)
    assert one.place == ("checkpoints", "transaction_timeout")
    assert one.value == "20m is more than the brokers allow (transaction.max.timeout.ms)"
    assert (
        one.remedy == "checkpoints: {transaction_timeout: 15m}; or transaction.max.timeout.ms=1200000 at every broker"
    )


@pytest.mark.parametrize(
    ("lifetime", "level"),
    [(UNATTENDED_MS, PROBLEM), (UNATTENDED_MS + 1, WARNING), (259_199_999, WARNING), (259_200_000, Severity.OK)],
)
def test_the_expiration_of_transactional_ids_is_compared_with_outages(lifetime: int, level: Severity) -> None:
    settings = {**BROKER, "transactional.id.expiration.ms": lifetime}
    (one,) = [one for one in of_cluster(broker_settings=settings) if one.check == "id-expiration"]
    assert one.severity is level


def test_limits_that_are_hidden_are_unknown() -> None:
    found = {(one.check, one.severity) for one in bad(of_cluster(broker_settings={}))}
    assert found == {("transaction-timeout", UNKNOWN), ("id-expiration", UNKNOWN)}


def missing(*needs: Need, commands: Commands = COMMANDS) -> list[Finding]:
    rights = ((RIGHT, True), *((need, False) for need in needs))
    return list(judge_rights(ClusterFacts({}, rights=rights), commands))


def test_all_that_is_missing_of_a_resource_is_one_command() -> None:
    read = msgspec.structs.replace(RIGHT, operation="Read", severity=WARNING)
    (one,) = missing(RIGHT, read)
    assert (one.severity, one.subject, one.place) == (PROBLEM, "topic out", RIGHT.place)
    assert one.remedy == (
        "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:app "
        "--operation Write --operation Read --topic out"
    )
    assert (one.value, one.prevents_start) == ("the user of `kafka:` lacks Write for writing, Read for writing", True)
    assert [(one.severity, one.prevents_start) for one in missing(read)] == [(WARNING, False)]


def test_ids_are_granted_by_prefix_the_cluster_by_no_name_and_a_secured_one_by_an_administrator() -> None:
    ids = Need("transactional-id", "check.", "Write", ("name",), user="app")
    cluster = Need("cluster", "", "DescribeConfigs", SERVERS, WARNING, user="app")
    whole, prefixed = missing(ids, cluster, commands=Commands("b:9092", secured=True))
    assert prefixed.remedy.endswith("--transactional-id check. --resource-pattern-type prefixed")
    assert whole.remedy.endswith("--operation DescribeConfigs --cluster")
    assert "--command-config ADMIN.properties" in whole.remedy


def test_needs_are_what_the_operations_page_lists_for_each_user() -> None:
    loaded = pipeline()
    needs = {
        (one.resource, one.name, one.operation): one for one in derive_needs(loaded, build_plan(loaded), MAIN_CLUSTER)
    }
    required = {key for key, need in needs.items() if need.severity is PROBLEM}
    assert required == {
        ("topic", "in", "Read"),
        ("topic", "out", "Write"),
        ("topic", "out", "Read"),
        ("transactional-id", "check.", "Write"),
    }
    assert ("group", "check", "Read") in needs
    assert {need.user for need in needs.values()} == {PRINCIPAL}


def test_ids_of_others_under_the_name() -> None:
    mine = [listing(own("j"), CoordinatorState.ONGOING), listing(own("k"))]
    assert bad(of_cluster(listings=tuple(mine))) == []
    another = only(of_cluster(listings=(*mine, listing(own("k"), CoordinatorState.ONGOING))))
    assert (another.check, another.severity) == ("other-ids", PROBLEM)
    assert "journal k" in another.value
    stranger = only(of_cluster(listings=(listing("check.streams-1"),)))
    assert (stranger.severity, "check.streams-1" in stranger.value) == (WARNING, True)
    longer = listing("check.eu.out.0.1-k.0", CoordinatorState.ONGOING)
    assert bad(of_cluster(listings=(longer,))) == [], "another pipeline, whose name begins as ours does"
    replays = tuple(listing(one) for one in ("check.dead-letters", "check.eu.dead-letters"))
    assert bad(of_cluster(listings=replays)) == [], "of `dead-letters replay`"
    assert bad(of_cluster("", listings=(listing(own("k"), CoordinatorState.ONGOING),))) == [], "`start` refuses it"


def test_other_writers_are_named_once_for_each_topic() -> None:
    others = (OtherWriter("out", 7, "streams-1", 5), OtherWriter("out", 8, "", 5))
    one = only(of_cluster(others=others))
    assert (one.check, one.severity, one.subject) == ("other-writers", WARNING, "out")
    assert one.value == "2 other producers in the last day: streams-1"


@pytest.mark.parametrize(
    ("verdict", "owner", "level", "command"),
    [
        (HangingVerdict.COMMIT, own("j"), WARNING, False),
        (HangingVerdict.ABORT, own("j"), WARNING, False),
        (HangingVerdict.UNSURE, own("j"), PROBLEM, True),
        (HangingVerdict.FOREIGN, "other", PROBLEM, True),
        (HangingVerdict.UNSEEN, None, WARNING, True),
    ],
)
def test_a_hanging_transaction_is_a_problem_unless_a_start_ends_it(
    verdict: HangingVerdict, owner: str | None, level: Severity, command: bool
) -> None:
    one = only(of_cluster(hanging=(hanging(verdict, owner),)))
    assert (one.check, one.severity, one.subject) == ("open-transactions", level, "out[3]")
    assert ("abort --topic out --partition 3 --start-offset 42" in one.remedy) is command


def test_an_open_transaction_of_another_program_is_a_warning_after_a_minute() -> None:
    waits = (
        Wait(PART, 1, "young", 60_000, own=False),
        Wait(PART, 2, "old", 60_001, own=False),
        Wait(PART, 3, own("j"), 600_000, own=True),
    )
    one = only(of_cluster(waits=waits))
    assert (one.severity, one.value) == (WARNING, "old is open for 1m from offset 2 on")


def test_what_could_not_be_seen_is_not_called_ok() -> None:
    unseen = bad(of_cluster(transactions_seen=False))
    assert [one.check for one in unseen] == ["other-ids", "other-writers", "open-transactions"]
    assert {one.severity for one in unseen} == {UNKNOWN}
