"""The demo's daemon as it is watched."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tidegate.dev.demo.daemon import DemoDaemon

STATUS = b"""{"pipeline": "demo", "version": "1", "state": "running", "reason": "", "attempt": 1, "uptime_seconds": 1.0,
"records_in": 7, "records_out": 7, "records_in_per_second": 1.0, "records_out_per_second": 1.0, "records_committed": 7,
"bad_records": 0, "lag_records": 0, "lag_age_seconds": 0.1, "last_checkpoint": null, "failed_checkpoints": 0,
"restarts": 0}"""


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(STATUS)

    def log_message(self, *_what: object) -> None:
        return


def test_no_proxy_is_asked_for_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a company does not reach this machine, and the demo waited for its daemon in vain."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    log = tmp_path / "log"
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        log.write_text(f"metrics and probes on http://127.0.0.1:{server.server_port}\n")
        answering = threading.Thread(target=server.serve_forever, args=(0.01,))
        answering.start()
        status = DemoDaemon(tmp_path / "orders.yaml", {}, log, lambda _: None).status()
        server.shutdown()
        answering.join()
    assert status is not None
    assert status.records_in == 7


def test_settings_of_a_place_are_not_for_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its daemon asked the brokers and the checkpoint directory of the site."""
    monkeypatch.setenv("TIDEGATE_SITE", "/etc/tidegate/site.yaml")
    given: list[Mapping[str, str]] = []
    monkeypatch.setattr("tidegate.dev.demo.daemon.subprocess.Popen", lambda *_, env, **__: given.append(env))
    DemoDaemon(tmp_path / "orders.yaml", {"UNTIL": "end"}, tmp_path / "log", lambda _: None).start()
    assert (given[0]["UNTIL"], given[0].get("TIDEGATE_SITE")) == ("end", None)
