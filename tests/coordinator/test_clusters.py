"""Which clusters a checkpoint may continue on: compared by Kafka's ids, whatever their names are."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import ME, committable, completed, positions
from tidegate.coordinator.clusters import derive_current_names, find_moved_sinks, find_twice, name_committables
from tidegate.coordinator.entries import ClusterIdentity, Identity
from tidegate.coordinator.recovery import (
    RestoreFacts,
    RestoreRefused,
    decide_replaced,
    decide_restore,
    merge_by_cluster,
)
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.plan.graph import UpgradeDirective

ORDERS, OUT = OperatorName("orders"), OperatorName("out")
US, EU = ClusterName("us"), ClusterName("eu")


def identity(sources: str = "kafka", sinks: str = "us", **clusters: str) -> Identity:
    """A pipeline with one source and one sink; each cluster is given with its id, and has both topics."""
    return Identity(
        "shop",
        {
            ClusterName(name): ClusterIdentity(cluster_id, {"orders": f"orders in {cluster_id}", "out": "o"})
            for name, cluster_id in clusters.items()
        },
        2,
        128,
        sources={ORDERS: ClusterName(sources)},
        sinks={OUT: ClusterName(sinks)},
    )


BEFORE = identity(kafka="A", us="B")


def journal_of(before: Identity = BEFORE, *listed_in: str) -> Journal:
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(before, 1)
    listed = [
        msgspec.structs.replace(committable(1, 100 + number, pool_slot=number), cluster=ClusterName(name))
        for number, name in enumerate(listed_in)
    ]
    journal.append_checkpoint(
        completed(1, attempt=1, at=[positions("orders", {"orders": {0: 7}})], committables=listed)
    )
    return journal


def facts(now: Identity) -> RestoreFacts:
    return RestoreFacts(now, {source: {"orders": 1} for source in now.sources}, frozenset())


@pytest.mark.parametrize(
    ("now", "refused"),
    [
        (identity(kafka="A", us="B"), ""),
        (identity(kafka="A", east="B", sinks="east"), ""),  # renamed
        (identity(us="A", kafka="B", sources="us", sinks="kafka"), ""),  # names swapped
        (identity(kafka="A", us="B", eu="C"), ""),  # one added
        (identity(kafka="A", sinks="kafka"), ""),  # the sink has moved, and nothing uses the other cluster
        (identity(kafka="A", us="B", sinks="kafka"), ""),  # the sink has moved
        (identity(kafka="A", us="C"), "`bootstrap.servers` of `us` leads to cluster C"),
        (identity(kafka="C", us="B"), "`bootstrap.servers` of `kafka` leads to cluster C"),
        (identity(kafka="C", us="B", old="A", sources="old"), ""),  # the name was given to a new cluster
        (identity(kafka="C", us="B", old="A"), "source orders: the checkpoint has its positions in Kafka cluster A"),
        (identity(kafka="A", us="B", sources="us"), "and it reads `us` now, which is cluster B"),
        (identity(kafka="B", sinks="kafka"), "source orders: the checkpoint has its positions in Kafka cluster A"),
    ],
)
def test_a_checkpoint_continues_on_the_clusters_that_it_was_taken_on(now: Identity, refused: str) -> None:
    state = journal_of().read()
    if not refused:
        assert decide_restore(state, facts(now)).checkpoint is not None
        return
    with pytest.raises(RestoreRefused) as caught:
        decide_restore(state, facts(now))
    assert refused in caught.value.message


def test_the_places_of_refusals_are_the_cluster_and_the_source() -> None:
    for now, field, value in (
        (identity(kafka="A", us="C"), "cluster", "us"),
        (identity(kafka="A", us="B", sources="us"), "operator", "orders"),
    ):
        with pytest.raises(RestoreRefused) as caught:
            decide_restore(journal_of().read(), facts(now))
        assert caught.value.fields[field] == value


def test_a_pipeline_with_one_cluster_reads_nothing_of_names() -> None:
    before, now = identity(kafka="A", sinks="kafka"), identity(kafka="C", sinks="kafka")
    with pytest.raises(RestoreRefused) as caught:
        decide_restore(journal_of(before).read(), facts(now))
    assert "`bootstrap.servers` leads to cluster C" in caught.value.message
    assert "of `kafka`" not in caught.value.message


def test_a_topic_that_was_recreated_in_one_cluster_is_not_that_of_the_other() -> None:
    """Both clusters have topics of these names."""
    again = identity(kafka="A", us="B")
    again.clusters[US].topic_ids["orders"] = "made again"
    with pytest.raises(RestoreRefused, match="topic orders in us was deleted and created again"):
        decide_restore(journal_of().read(), facts(again))


def test_a_renamed_source_is_compared_by_its_former_name() -> None:
    renamed = OperatorName("purchases")
    for cluster, fine in ((MAIN_CLUSTER, True), (US, False)):
        now = msgspec.structs.replace(BEFORE, sources={renamed: cluster})
        plan = _Directives({renamed: UpgradeDirective(was=ORDERS)})
        known = RestoreFacts(now, {renamed: {"orders": 1}}, frozenset(), plan=plan)  # type: ignore[arg-type]  # its directives only
        if fine:
            assert decide_restore(journal_of().read(), known).checkpoint is not None
        else:
            with pytest.raises(RestoreRefused, match="source purchases: the checkpoint has its positions"):
                decide_restore(journal_of().read(), known)


class _Directives(msgspec.Struct):
    directives: dict[OperatorName, UpgradeDirective]
    nodes: tuple[()] = ()
    vertices: tuple[()] = ()
    edges: tuple[()] = ()

    def operators(self, _kind: object) -> tuple[()]:
        return ()


def test_transactions_are_committed_in_the_cluster_that_they_are_in_whatever_its_name_is() -> None:
    journal = journal_of(BEFORE, "us", "kafka")
    swapped = identity(us="A", kafka="B", sources="us", sinks="us")  # the sink has moved, too
    journal.take_over(swapped, 2)
    permit = journal.release_permit()
    assert permit is not None
    assert [one.cluster for one in permit.committables] == ["kafka", "us"]
    assert {name: [one.producer_id for one in part.committables] for name, part in permit.parts} == {
        "kafka": [100],
        "us": [101],
    }


def test_what_is_salvaged_after_a_renaming_is_listed_under_the_names_of_now() -> None:
    journal = journal_of(BEFORE, "us")
    now = identity(kafka="A", east="B", sinks="east")
    restore = decide_restore(journal.take_over(now, 2), facts(now))
    again = msgspec.structs.replace(committable(1, 300), cluster=ClusterName("east"))
    appended = journal.append_salvaged(restore, (again,), 3)
    assert [name for name, _ in appended.permit.parts] == ["east"]
    permit, listed = journal.release_permit(), journal.state.identity
    assert permit is not None
    assert [name for name, _ in permit.parts] == ["east"]
    assert listed is not None
    assert (listed.clusters[ClusterName("east")].id, listed.sources) == ("B", {ORDERS: MAIN_CLUSTER})


@pytest.mark.parametrize("decide", [decide_restore, decide_replaced])
def test_transactions_in_a_cluster_that_nothing_uses_any_more_are_not_forgotten(decide: object) -> None:
    state = journal_of(BEFORE, "us").read()
    with pytest.raises(RestoreRefused) as caught:
        decide(state, facts(identity(kafka="A", sinks="kafka")))  # type: ignore[operator]  # both take these
    for words in ("transactions of sink out in Kafka cluster B (`us` then)", "start once with the file as it was"):
        assert words in caught.value.message


def test_a_savepoint_of_rows_without_clusters_fits_any() -> None:
    nowhere = msgspec.structs.replace(BEFORE, clusters={})
    assert decide_restore(journal_of(nowhere).read(), facts(identity(kafka="X", us="Y"))).checkpoint is not None


def test_a_sink_that_has_moved_is_told_with_both_clusters() -> None:
    (text,) = find_moved_sinks(BEFORE, identity(kafka="A", sinks="kafka"))
    assert text.startswith("sink out writes to `kafka` (Kafka cluster A) from here on")
    assert text.endswith("up to the checkpoint is in Kafka cluster B")
    assert find_moved_sinks(BEFORE, identity(kafka="A", east="B", sinks="east")) == []


def test_one_cluster_is_named_once() -> None:
    assert find_twice([(MAIN_CLUSTER, "A"), (US, "B")]) == ""
    assert find_twice([(MAIN_CLUSTER, "A"), (US, "B"), (EU, "A")]).startswith("`kafka` and `eu` are one Kafka cluster")


def test_names_are_those_of_now_and_gone_clusters_have_none() -> None:
    now = identity(main="A")
    assert derive_current_names(BEFORE, now) == {"kafka": "main"}
    one = committable(1)
    assert name_committables((one,), BEFORE, BEFORE) == (one,)


def test_positions_of_one_topic_name_in_two_clusters_are_not_mixed() -> None:
    at, part = (
        (positions("orders", {"orders": {0: 7}}), positions("more", {"orders": {0: 3}})),
        TopicPartition("orders", 0),
    )
    clusters = {ORDERS: MAIN_CLUSTER, OperatorName("more"): US, OperatorName("third"): EU}
    assert merge_by_cluster(at, clusters) == {"kafka": {part: 7}, "us": {part: 3}, "eu": {}}
