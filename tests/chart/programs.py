"""helm and kubectl as `tools/kubernetes/build.sh` has built them, and the chart with its examples."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

TOOLS: Final = "TIDEGATE_CHART_TOOLS"
"""Names the directory with the programs."""
ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "tidegate"
EXAMPLES: Final = sorted((CHART / "ci").glob("*-values.yaml"))
KUBERNETES: Final = "1.36"


def program(name: str) -> str:
    """Its path."""
    return str(Path(os.environ[TOOLS]) / name)


def helm(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster."""
    command = [program("helm"), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not check or ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran


def render(*arguments: object, namespace: str = "streams") -> list[dict[str, Any]]:
    """The objects of the chart with these options of `helm template`."""
    text = helm("template", "rel", CHART, "--namespace", namespace, *arguments).stdout
    return [one for one in yaml.safe_load_all(text) if one]


def refused(*arguments: object) -> str:
    """What helm says when it refuses values."""
    ran = helm("template", "rel", CHART, "--namespace", "streams", *arguments, check=False)
    assert ran.returncode != 0, ran.stdout
    return ran.stderr


def find(objects: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    """The only object of this kind (and end of its name)."""
    found = [one for one in objects if one["kind"] == kind and one["metadata"]["name"].endswith(name)]
    assert len(found) == 1, [(one["kind"], one["metadata"]["name"]) for one in objects]
    return found[0]
