"""A server that knows one claim, and as much of Kubernetes as helm asks for when a template looks something up."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

KIND: Final = "PersistentVolumeClaim"
CLAIMS: Final = {"name": "persistentvolumeclaims", "namespaced": True, "kind": KIND, "verbs": ["get"]}


class ClaimServer(LoopbackServer):
    """The claim `name` in namespace `streams`, with this `spec`."""

    def __init__(self, name: str, spec: dict[str, Any]) -> None:
        super().__init__(_Handler)
        claim = {"kind": KIND, "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
        self.answers: Final[dict[str, Any]] = {
            "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [CLAIMS]},
            f"/api/v1/namespaces/streams/persistentvolumeclaims/{name}": claim,
        }


class _Handler(LoopbackHandler):
    def do_GET(self) -> None:
        found = self.owner.answers.get(self.path.partition("?")[0])
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        body = json.dumps(missing if found is None else found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
