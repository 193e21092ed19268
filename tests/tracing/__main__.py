"""`make tracing`: a daemon sends traces of its checkpoints to a receiver of OTLP, which reads them as protobuf.

The packages of the extra `tracing` are in a virtual environment of their own; broker, Spark and daemon are real.
"""

from __future__ import annotations

import gzip
import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

PHASES = {"barrier", "alignment", "sync", "acknowledge", "journal", "commit"}
BODY_BYTES_MAX = 1 << 24


class Receiver:
    """Keeps what was exported, by trace."""

    def __init__(self) -> None:
        self.traces: dict[bytes, list[Any]] = {}
        self.resources: list[dict[str, str]] = []
        self.headers: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces", self.path
                body = self.rfile.read(min(int(self.headers["Content-Length"]), BODY_BYTES_MAX))
                owner.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                owner.headers.append(self.headers.get("X-Tenant", ""))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        """One export."""
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append({one.key: one.value.string_value for one in group.resource.attributes})
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.traces.setdefault(span.trace_id, []).append(span)

    def whole(self) -> dict[int, list[Any]]:
        """Traces with a root, by the id of their checkpoint."""
        found = {}
        for spans in list(self.traces.values()):
            roots = [span for span in spans if not span.parent_span_id]
            if roots:
                (root,) = roots
                found[_attributes(root)["tidegate.checkpoint.id"].int_value] = spans
        return found


def _attributes(span: Any) -> dict[str, Any]:
    return {one.key: one.value for one in span.attributes}


def main() -> int:
    """Exit code 0 when all is as it should be."""
    receiver = Receiver()
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-tracing-") as name,
        DevelopmentBroker(Path(name) / "broker") as broker,
    ):
        with Rig(_Topics(broker), Path(name) / "rig") as rig:
            rig.environ |= {
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{receiver.server.server_port}",
                "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=tests",
                "OTEL_SERVICE_NAME": "orders-pipeline",
                "OTEL_BSP_SCHEDULE_DELAY": "200",
            }
            daemon = rig.running()
            wait_until(lambda: len(receiver.whole()) >= 3, "three traces")
            records = json.loads(daemon.http("/checkpoints")[1])
            rig.finish(daemon)
        check(receiver, records, rig.pipeline.name)
    receiver.server.shutdown()
    print(
        msgspec.json.encode({"traces": len(receiver.traces), "spans": sum(map(len, receiver.traces.values()))}).decode()
    )
    return 0


def check(receiver: Receiver, records: list[dict[str, Any]], pipeline: str) -> None:
    """Traces say what `GET /checkpoints` says."""
    traces = receiver.whole()
    assert all(one["service.name"] == "orders-pipeline" for one in receiver.resources), receiver.resources
    assert all(one["tidegate.pipeline"] == pipeline for one in receiver.resources)
    assert set(receiver.headers) == {"tests"}
    assert any("final checkpoint" in root.name or root.name == "final" for spans in traces.values() for root in spans)
    compared = 0
    for record in records:
        if record["result"] != "completed" or record["id"] not in traces:
            continue
        spans = traces[record["id"]]
        (root,) = [span for span in spans if not span.parent_span_id]
        assert root.end_time_unix_nano - root.start_time_unix_nano == record["duration_ms"] * 1_000_000
        names = [span.name for span in spans]
        assert set(names) >= PHASES, names
        subtasks = {f"{one['vertex']}[{one['slot']}]" for one in record["subtasks"]}
        assert subtasks <= set(names), (subtasks, names)
        ids = {span.span_id for span in spans}
        assert all(span.parent_span_id in ids for span in spans if span is not root)
        compared += 1
    assert compared >= 2, "an empty comparison proves nothing"


class _Topics:
    """As the session's broker of the tests."""

    def __init__(self, broker: DevelopmentBroker) -> None:
        self.bootstrap = broker.bootstrap
        self._broker = broker

    def create_topics(self, topics: dict[str, int]) -> None:
        """With leaders."""
        self._broker.create_topics(topics)


if __name__ == "__main__":
    raise SystemExit(main())
