"""Every example against a real API server that takes nothing but `restricted` pods, as a dry run: nothing is made."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.error import HTTPError

import pytest
import yaml

from tests.chart.cluster import Cluster
from tests.chart.programs import CHART, EXAMPLES, TOOLS, find, render

pytestmark = [pytest.mark.slow]

ON_KUBERNETES = CHART / "ci" / "kubernetes-values.yaml"


@pytest.fixture(scope="module")
def monitored(cluster: Cluster) -> Cluster:
    """With the resources of the Prometheus operator."""
    cluster.kubectl("apply", "--server-side", "-f", Path(os.environ[TOOLS]) / "crds")
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=120s")
    return cluster


def dry_run(cluster: Cluster, namespace: str, text: str) -> str:
    options = ("--dry-run=server", "--server-side", "--validate=strict", "-f", "-")
    return cluster.kubectl("-n", namespace, "apply", *options, given=text)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_api_server_takes_every_object(monitored: Cluster, namespace: str, file: Path) -> None:
    objects = render("-f", file, namespace=namespace)
    assert dry_run(monitored, namespace, yaml.safe_dump_all(objects)).count("serverside-applied") == len(objects)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("ServiceMonitor", "interval", "intervall"),
        ("PrometheusRule", "expr", "expression"),
        ("Deployment", "readinessProbe", "readinesProbe"),
    ],
)
def test_a_misspelt_field_would_be_found(monitored: Cluster, namespace: str, kind: str, old: str, new: str) -> None:
    text = yaml.safe_dump(find(render("-f", ON_KUBERNETES, namespace=namespace), kind))
    assert old in text
    with pytest.raises(AssertionError, match=f"{new}|{old}"):
        dry_run(monitored, namespace, text.replace(f"{old}:", f"{new}:", 1))


@pytest.mark.parametrize("what", ["pod", "container"])
def test_executors_are_admitted_and_only_because_they_are_restricted(
    monitored: Cluster, namespace: str, what: str
) -> None:
    """The template has no image: Spark adds it."""
    site = find(render("-f", ON_KUBERNETES, namespace=namespace), "ConfigMap", "tidegate-site")
    pod = yaml.safe_load(site["data"]["executor.yaml"])
    pod["metadata"]["name"] = "executor"
    pod["spec"].pop("priorityClassName", None)
    pod["spec"]["serviceAccountName"] = "default"
    container = pod["spec"]["containers"][0]
    container["image"] = "tidegate"
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    assert monitored.api.ask("POST", path, pod)["metadata"]["name"] == "executor"
    del (pod["spec"] if what == "pod" else container)["securityContext"]
    with pytest.raises(HTTPError) as refused:
        monitored.api.ask("POST", path, pod)
    assert "violates PodSecurity" in refused.value.read().decode()
