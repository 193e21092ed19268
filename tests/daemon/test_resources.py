"""All resources of a daemon: what is described of them is valid, and complete."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tidegate.config.draft import SAMPLE
from tidegate.config.load import parse_pipeline
from tidegate.daemon.http.commands import API, COMMANDS
from tidegate.daemon.http.openapi import make_openapi
from tidegate.daemon.http.resources import Resource, parse_query
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.pipeline_history import (
    EVENTS_MAX,
    INTERVAL_S,
    STEPS_MAX,
    EventKind,
    History,
    PipelineEvent,
    PipelineSeries,
    StepSeries,
)
from tidegate.daemon.resources import make_resources
from tidegate.daemon.taps import TapService
from tidegate.plan.build import build_plan

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "rest.md"
OPERATING = {"dead-letters", "state", "tap"}


@pytest.fixture(scope="module")
def resources() -> list[Resource[Any]]:
    loaded = parse_pipeline(SAMPLE, "p.yaml", {})
    plan = build_plan(loaded)
    return make_resources(loaded, plan, PipelineMetrics("shop", "0.1.0"), TapService(plan, ()))


def cells(title: str) -> Iterator[str]:
    """Names in the first column of the table with this head."""
    _, _, table = PAGE.read_text("utf-8").partition(f"\n| {title} | ")
    assert table
    for row in table.partition("\n\n")[0].splitlines()[2:]:
        yield from re.findall(r"`([^`]+)`", row.split("|")[1])


@pytest.mark.slow
def test_a_daemon_describes_all_of_its_resources(resources: list[Resource[Any]]) -> None:
    description = make_openapi(resources, "0.1.0")
    OpenAPIV31SpecValidator(description).validate()
    reading = {path: methods["get"] for path, methods in description["paths"].items() if "get" in methods}
    assert set(reading) == {one.path for one in resources}
    operating = {path.rpartition("/")[2] for path, one in reading.items() if "403" in one["responses"]}
    assert operating == OPERATING
    assert all(one["summary"].endswith(".") for one in reading.values())
    text = json.dumps(description)
    assert [word for word in ("None if", "True if", "False if", '"items": false') if word in text] == []


def test_the_page_lists_all_resources_commands_and_events(resources: list[Resource[Any]]) -> None:
    assert set(cells("`GET /api/v1/`")) == {one.name for one in resources} | {"openapi.json"}
    assert list(cells("command")) == [f"POST {API}{one.path}" for one in COMMANDS]
    assert list(cells("kind")) == list(EventKind)
    page = PAGE.read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    fields = {*History.__struct_fields__, *PipelineSeries.__struct_fields__, *StepSeries.__struct_fields__}
    assert (fields | set(PipelineEvent.__struct_fields__)) - named == set()
    assert f"every {INTERVAL_S:.0f} s" in page
    assert f"newest {EVENTS_MAX}," in page
    assert f"first {STEPS_MAX} steps" in page


def test_addresses_on_the_page_are_those_of_resources_with_their_parameters(resources: list[Resource[Any]]) -> None:
    known = {one.path: one for one in resources}
    addresses = re.findall(r"http://localhost:9095(/api/v1/[^\s']+)", PAGE.read_text("utf-8"))
    asked = [urlsplit(one) for one in addresses]
    others = {f"{API}/openapi.json", f"{API}/savepoints"}
    assert {one.path for one in asked} - known.keys() == others
    read = [parse_query(known[one.path], parse_qsl(one.query)) for one in asked if one.path in known]
    assert len(read) >= 4
