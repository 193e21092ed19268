"""Compares the Kafka clusters of a checkpoint with those of the pipeline file now. Pure.

Kafka's cluster id identifies a cluster. Its name in the file may change, and entries of the journal keep the names of
their time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.entries import ClusterIdentity, Identity
from tidegate.coordinator.types import SourcePositions
from tidegate.coordinator.upgrade import Upgrade
from tidegate.errors import BEGIN_ANEW, REPLACED_TOPIC
from tidegate.ids import MAIN_CLUSTER, ClusterName


class ClusterProblem(msgspec.Struct, frozen=True):
    """Why a checkpoint cannot be continued, and the fields of the error about it."""

    message: str
    fields: dict[str, object]


def find_twice(clusters: Iterable[tuple[ClusterName, str]]) -> str:
    """Describes two names that stand for one cluster, given names with cluster ids; empty if there are none."""
    names: dict[str, ClusterName] = {}
    for name, cluster_id in clusters:
        other = names.setdefault(cluster_id, name)
        if other != name:
            return (
                f"`{other}` and `{name}` are one Kafka cluster ({cluster_id}): name it once, and use that name in "
                "sources, sinks and dead letters"
            )
    return ""


def derive_current_names(old: Identity, now: Identity) -> dict[ClusterName, ClusterName]:
    """Returns the current names of the clusters of an old identity, without clusters that nothing uses now."""
    names = {one.id: name for name, one in now.clusters.items()}
    return {name: names[one.id] for name, one in old.clusters.items() if one.id in names}


def name_committables(
    committables: tuple[Committable, ...], identity: Identity, now: Identity
) -> tuple[Committable, ...]:
    """Returns transactions that an entry of this identity lists, with the current names of their clusters."""
    names = derive_current_names(identity, now)
    if all(names.get(one.cluster, one.cluster) == one.cluster for one in committables):
        return committables
    return tuple(msgspec.structs.replace(one, cluster=names.get(one.cluster, one.cluster)) for one in committables)


def adopt_clusters(old: Identity, now: Identity) -> Identity:
    """Returns an old identity with the clusters of now under their current names, and the topic ids of both."""
    names = derive_current_names(old, now)
    topics = {one.id: one.topic_ids for one in old.clusters.values()}
    return msgspec.structs.replace(
        old,
        clusters={
            name: ClusterIdentity(one.id, {**topics.get(one.id, {}), **one.topic_ids})
            for name, one in now.clusters.items()
        },
        sources={**{name: names[at] for name, at in old.sources.items() if at in names}, **now.sources},
        sinks={**{name: names[at] for name, at in old.sinks.items() if at in names}, **now.sinks},
    )


def derive_identity(old: Identity, now: Identity) -> Identity:
    """Derives the identity for appending an older checkpoint again; its fingerprints remain those of its states."""
    return msgspec.structs.replace(
        adopt_clusters(old, now),
        pipeline=now.pipeline,
        max_parallelism=now.max_parallelism,
        fingerprint=now.fingerprint,
    )


def find_replaced(old: Identity, now: Identity) -> ClusterProblem | None:
    """Finds a cluster whose address leads to another one than before.

    A name that was given to another known cluster is not such a case, and neither is a cluster that is there under
    another name.
    """
    before, after = ({one.id for one in identity.clusters.values()} for identity in (old, now))
    for name, was in sorted(old.clusters.items()):
        found = now.clusters.get(name)
        if found is None or found.id == was.id or was.id in after or found.id in before:
            continue
        place = "" if set(now.clusters) == {MAIN_CLUSTER} else f" of `{name}`"
        remedy = f"correct the address{place and ', or give the other cluster a name of its own'}"
        message = (
            f"the checkpoint was taken on Kafka cluster {was.id}, `bootstrap.servers`{place} leads to cluster "
            f"{found.id}; offsets are not valid there: {remedy}, or start with {BEGIN_ANEW}"
        )
        return ClusterProblem(message, {"cluster": name, "old": was.id, "new": found.id})
    return None


def find_recreated(old: Identity, now: Identity) -> ClusterProblem | None:
    """Finds a topic that was deleted and created again since the checkpoint."""
    names = derive_current_names(old, now)
    for name, was in sorted(old.clusters.items()):
        found = now.clusters[names[name]].topic_ids if name in names else {}
        for topic, topic_id in sorted(was.topic_ids.items()):
            current = found.get(topic, topic_id)
            if current != topic_id:
                message = (
                    f"topic {topic}{in_cluster(names[name], now)} was deleted and created again since the checkpoint "
                    f"(id {topic_id}, now {current}); its offsets start over. {REPLACED_TOPIC}"
                )
                return ClusterProblem(message, {"topic": topic, "old": topic_id, "new": current})
    return None


def find_moved(
    positions: Sequence[SourcePositions], old: Identity, now: Identity, upgrade: Upgrade
) -> ClusterProblem | None:
    """Finds a source whose positions, under current names, belong to another cluster than it reads now."""
    for one in positions:
        was = old.clusters.get(old.sources.get(upgrade.former(one.source), ClusterName("")))
        name = now.sources.get(one.source)
        if was is not None and name is not None and now.clusters[name].id != was.id:
            message = (
                f"source {one.source}: the checkpoint has its positions in Kafka cluster {was.id}, and it reads "
                f"`{name}` now, which is cluster {now.clusters[name].id}; offsets are not valid there: set its "
                "`cluster` back; or give the source another name, which begins as its `start` says; or start with "
                f"{BEGIN_ANEW}"
            )
            return ClusterProblem(message, {"operator": one.source})
    return None


def find_unreachable(committables: Sequence[Committable], old: Identity, now: Identity) -> ClusterProblem | None:
    """Finds transactions that an entry of this identity lists in a cluster that nothing uses now."""
    names = derive_current_names(old, now)
    for one in committables:
        if one.cluster not in names and one.cluster in old.clusters:
            message = (
                f"checkpoint {one.checkpoint} lists transactions of sink {one.sink} in Kafka cluster "
                f"{old.clusters[one.cluster].id} (`{one.cluster}` then), which no source and no sink is in now. They "
                "are decided, and without their commit their output would be missing: start once with the file as it "
                f"was, and stop it, which commits them; then change it. Or begin with {BEGIN_ANEW}"
            )
            return ClusterProblem(message, {"operator": one.sink})
    return None


def find_moved_sinks(old: Identity, now: Identity) -> list[str]:
    """Describes the sinks whose output before the checkpoint is in another cluster than what follows."""
    return [
        f"sink {sink} writes to `{name}` (Kafka cluster {now.clusters[name].id}) from here on; its output up to the "
        f"checkpoint is in Kafka cluster {old.clusters[old.sinks[sink]].id}"
        for sink, name in sorted(now.sinks.items())
        if old.sinks.get(sink) in old.clusters and old.clusters[old.sinks[sink]].id != now.clusters[name].id
    ]


def in_cluster(name: ClusterName, now: Identity) -> str:
    """Names the cluster behind a topic in a text, if the pipeline has several."""
    return "" if set(now.clusters) == {MAIN_CLUSTER} else f" in {name}"
