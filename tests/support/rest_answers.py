"""Compares what a running daemon answers with what it describes of its API."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from tests.support.daemon_process import DaemonProcess


def read_all(daemon: DaemonProcess) -> dict[str, Any]:
    """Returns the answer of each resource that needs neither a role nor a parameter. Each is as it is described."""
    description = json.loads(daemon.http("/api/v1/openapi.json")[1])
    found = {}
    for path, methods in description["paths"].items():
        if "get" not in methods or {} not in methods["get"]["security"]:
            continue
        status, text = daemon.http(path)
        assert status == 200, (path, text)
        found[path.rpartition("/")[2]] = answer = json.loads(text)
        compare(description, path, answer)
    return found


def compare(description: dict[str, Any], path: str, answer: Any, method: str = "get", status: int = 200) -> None:
    """Compares an answer with its description."""
    response = description["paths"][path][method]["responses"][str(status)]
    if "$ref" in response:
        response = description["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"]["application/json"]["schema"]
    jsonschema.Draft202012Validator({**schema, "components": description["components"]}).validate(answer)
