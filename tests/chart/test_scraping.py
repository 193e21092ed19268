"""A real Prometheus scrapes a real daemon as the chart's ServiceMonitor says, and answers every query of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.chart.programs import CHART, find, render
from tests.chart.prometheus import Prometheus, derive_scrape
from tests.conftest import SessionBroker
from tests.packaging.test_chart_files import metric_names
from tests.support.rig import Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RULES = CHART / "files" / "alerts.yaml"
HAPPENS_ELSEWHERE = {
    "tidegate_bad_records_total",
    "tidegate_checkpoint_failures_total",
    "tidegate_restarts_total",
    "tidegate_operator_entries",  # no windows and no timers
    "tidegate_operator_event_time_lag_seconds",  # no event time
    "tidegate_operator_rows_late_total",
    "tidegate_source_watermark_stalled_seconds",
}
"""Of these a healthy daemon of this pipeline has nothing yet."""


def dashboard(pipeline: str) -> list[tuple[str, str]]:
    """Panel and query, as Grafana fills them in."""
    panels = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]
    for name, value in {"$__rate_interval": "15s", "$namespace": "streams", "$pipeline": pipeline}.items():
        queries = [(title, query.replace(name, value)) for title, query in queries]
    return queries


def test_prometheus_scrapes_a_daemon_and_answers_every_query_of_dashboard_alerts_and_runbook(
    broker: SessionBroker, tmp_path: Path
) -> None:
    local = CHART / "ci" / "local-values.yaml"
    objects = render("--values", local, "--set", "metrics.serviceMonitor.enabled=true")
    service = find(objects, "Service")["metadata"]["name"]
    with Rig(broker, tmp_path / "rig") as rig:
        daemon = rig.running()
        target = daemon.wait_for(r"http://(127\.0\.0\.1:\d+)").group(1)
        labels = {"service": service, "namespace": "streams", "pod": f"{service}-0"}
        scrape = derive_scrape(find(objects, "ServiceMonitor"), target, labels)
        with Prometheus(tmp_path / "prometheus", scrape, RULES) as prometheus:
            wait_until(lambda: len(prometheus.query("up == 1")) == 1, "a scrape that succeeded")
            wait_until(lambda: prometheus.query("rate(tidegate_checkpoints_total[15s]) > 0") != [], "rates")
            (found,) = prometheus.targets()
            assert (found["health"], found["lastError"], found["labels"]["job"]) == ("up", "", service)

            silent = [query for _, query in dashboard(rig.pipeline.name) if not prometheus.query(query)]
            assert {name for query in silent for name in metric_names(query)} <= HAPPENS_ELSEWHERE, silent
            assert len(dashboard(rig.pipeline.name)) > 30

            names = {rule["alert"] for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"][0]["rules"]}
            wait_until(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()), "all rules evaluated")
            rules = {rule["name"]: rule for rule in prometheus.rules()}
            assert rules.keys() == names
            assert [rule for rule in rules.values() if rule["health"] != "ok" or rule.get("lastError")] == []
            assert [name for name, rule in rules.items() if rule["state"] != "inactive"] == []

            rig.finish(daemon)
            wait_until(lambda: prometheus.query("up == 0") != [], "it is seen that the daemon has gone")
