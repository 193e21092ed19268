"""The description of the API: valid OpenAPI 3.1, about what is mounted, and true of what is answered."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.daemon.http.orders import ORDER, TOKEN, Daemon, post
from tests.support.rest_answers import compare
from tests.waiting import PATIENCE_S
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.daemon.http.openapi import read_field_docs
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.status import CheckpointStatus, OperatorStatus, SubtaskStatus
from tidegate.ids import Attempt, OperatorName


@pytest.fixture
def server(daemon: Daemon) -> Iterator[HttpServer]:
    """Everything that can be answered has something in it."""
    metrics = PipelineMetrics("shop", "0.1.0", operators=OperatorAccounts({OperatorName("orders"): "source"}))
    metrics.beat()
    metrics.attempt_failed(
        FailureRecord(
            failed_at_ms=1,
            attempt=Attempt(1),
            code="slot-lost",
            cause="gone",
            ran_ms=5,
            followed_by=FollowedBy.RESTART,
        )
    )
    server = HttpServer("127.0.0.1", 0, metrics)
    server.start()
    server.commands.serve(daemon, daemon.loop, TOKEN)
    yield server
    server.stop()


def get(server: HttpServer, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.slow
def test_the_description_is_valid_openapi(server: HttpServer) -> None:
    _, description = get(server, "/api/v1/openapi.json")
    OpenAPIV31SpecValidator(description).validate()
    assert description["info"]["version"] == "0.1.0"
    operations = [one for methods in description["paths"].values() for one in methods.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert {"getStatus", "getHistory", "takeCheckpoint", "takeSavepoint", "stop"} <= set(names)
    referred = json.dumps(description)
    unused = [name for name in description["components"]["schemas"] if f"#/components/schemas/{name}" not in referred]
    assert unused == []


def test_the_description_lists_what_is_mounted(server: HttpServer) -> None:
    _, description = get(server, "/api/v1/openapi.json")
    _, index = get(server, "/")
    reading = {path for path, methods in description["paths"].items() if "get" in methods}
    assert reading == {path for path in index["paths"] if path.startswith("/api/v1/")} - {"/api/v1/openapi.json"}


def test_answers_are_as_described(server: HttpServer) -> None:
    _, description = get(server, "/api/v1/openapi.json")
    for path, query in {
        "/api/v1/status": "",
        "/api/v1/checkpoints": "",
        "/api/v1/failures": "",
        "/api/v1/events": "",
        "/api/v1/history": "?step=orders",
    }.items():
        status, answer = get(server, path + query)
        assert status == 200
        compare(description, path, answer)
    compare(description, "/api/v1/history", get(server, "/api/v1/history?step=nobody")[1], status=404)
    compare(description, "/api/v1/history", get(server, "/api/v1/history?nothing=1")[1], status=400)
    with pytest.raises(jsonschema.ValidationError):
        compare(description, "/api/v1/status", {})


def test_answers_to_commands_are_as_described(server: HttpServer) -> None:
    _, description = get(server, "/api/v1/openapi.json")
    for name in ("checkpoints", "savepoints", "stop"):
        path = f"/api/v1/{name}"
        for order, token, expected in ((ORDER, TOKEN, 200), (ORDER, "another", 401), (b"{}", TOKEN, 400)):
            status, answer = post(server, path, order, authorization=f"Bearer {token}")
            assert status == expected
            compare(description, path, answer, "post", status)


def test_fields_have_the_descriptions_of_their_docstrings(server: HttpServer) -> None:
    _, description = get(server, "/api/v1/openapi.json")
    schemas = description["components"]["schemas"]
    for struct in (OperatorStatus, SubtaskStatus, CheckpointStatus):
        for name, text in read_field_docs(struct).items():
            assert schemas[struct.__name__]["properties"][name]["description"] == text
    assert "the last few seconds" in schemas["OperatorStatus"]["description"]
    assert schemas["SubtaskStatus"]["properties"]["failed"]["description"].startswith("Rows that could not be read")
    after = description["paths"]["/api/v1/history"]["get"]["parameters"][0]
    assert (after["name"], after["required"]) == ("after_ms", False)
    assert after["description"].startswith("Unix time in milliseconds")
