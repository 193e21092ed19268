"""Tests of the chart with helm and a real API server: `make chart`, which builds both with Go.

Plain `make test` does not collect them: it has to pass on a machine with Python alone. It runs the checks of
tests/packaging. The directory of the programs comes from `make chart` by TIDEGATE_CHART_TOOLS, and from nowhere else:
what happens to be in a cache does not change what `make test` runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.cluster import Cluster
from tests.chart.programs import ROOT, TOOLS

if TOOLS not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane with one node that runs the chart's pods as processes."""
    covered = Path("/tmp")  # by a volume in every pod
    assert not ROOT.is_relative_to(covered), (
        f"pods would not see {ROOT}: run `make chart` in a checkout outside {covered}"
    )
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A new one that takes nothing but pods of the standard `restricted`."""
    name = f"t{abs(hash(request.node.name)) % 10**8}-{os.getpid()}"
    cluster.create_namespace(name)
    return name


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """For values and pipeline files."""
    return tmp_path
