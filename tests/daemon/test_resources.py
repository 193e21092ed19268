"""All resources of a daemon: what is described of them is valid, and complete."""

from __future__ import annotations

import json

from openapi_spec_validator import OpenAPIV31SpecValidator

from tidegate.config.load import parse_pipeline
from tidegate.config.sample import SAMPLE
from tidegate.daemon.http.openapi import make_openapi
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.resources import make_resources
from tidegate.daemon.tap_resource import TapService
from tidegate.plan.build import build_plan

NAMES = {
    "checkpoints",
    "config",
    "dead-letters",
    "events",
    "failures",
    "history",
    "partitions",
    "plan",
    "state",
    "status",
    "tap",
}


def test_a_daemon_describes_all_of_its_resources() -> None:
    loaded = parse_pipeline(SAMPLE, "p.yaml", {})
    plan = build_plan(loaded)
    resources = make_resources(loaded, plan, PipelineMetrics("shop", "0.1.0"), TapService(plan, ()))
    description = make_openapi(resources, "0.1.0")
    OpenAPIV31SpecValidator(description).validate()
    assert {one.name for one in resources} == NAMES
    reading = {path: methods["get"] for path, methods in description["paths"].items() if "get" in methods}
    assert set(reading) == {f"/api/v1/{name}" for name in NAMES}
    operating = {path.rpartition("/")[2] for path, one in reading.items() if "403" in one["responses"]}
    assert operating == {"dead-letters", "state", "tap"}
    assert all(one["summary"].endswith(".") for one in reading.values())
    text = json.dumps(description)
    assert [word for word in ("None if", "True if", "False if") if word in text] == []
