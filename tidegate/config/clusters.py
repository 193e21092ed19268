"""The Kafka clusters of a pipeline by name: `kafka` at the top of the file, and those of `clusters`. Pure.

A cluster inherits nothing from another one, so that no password reaches a broker that it is not meant for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate.config.fields.base import Path
from tidegate.config.fields.secrets import Text, reveal
from tidegate.ids import MAIN_CLUSTER, ClusterName

if TYPE_CHECKING:
    from tidegate.config.models import PipelineSettings


def derive_clusters(settings: PipelineSettings) -> dict[ClusterName, dict[str, str]]:
    """Returns the revealed properties of each cluster that a source, a sink or the dead letters use, `kafka` first."""
    used = {name for _, name in derive_uses(settings)}
    return {name: reveal(properties_of(settings, name)) for name in cluster_names(settings) if name in used}


def cluster_names(settings: PipelineSettings) -> tuple[ClusterName, ...]:
    """Returns the names of all clusters in the file, used or not, `kafka` first."""
    return MAIN_CLUSTER, *settings.clusters


def properties_of(settings: PipelineSettings, name: ClusterName) -> Mapping[str, Text]:
    """Returns the properties of a cluster; none if the file does not define it, which is reported elsewhere."""
    return settings.kafka if name == MAIN_CLUSTER else settings.clusters.get(name, {})


def place_of(name: ClusterName) -> Path:
    """Returns where the file has the properties of a cluster."""
    return (MAIN_CLUSTER,) if name == MAIN_CLUSTER else ("clusters", name)


def derive_uses(settings: PipelineSettings) -> Iterator[tuple[Path, ClusterName]]:
    """Yields the cluster of every source and sink and of the dead letters, with the place of that section."""
    yield from ((("sources", name), one.cluster) for name, one in settings.sources.items())
    yield from ((("sinks", name), one.cluster) for name, one in settings.sinks.items())
    if settings.dead_letters is not None:
        yield ("dead_letters",), settings.dead_letters.cluster
