"""Alert rules and queries of the dashboard, by Prometheus' own tool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import yaml

from tests.chart.programs import CHART

RULES = CHART / "files" / "alerts.yaml"
CASES = Path(__file__).with_name("alerts.test.yaml")


def promtool(*arguments: object) -> str:
    ran = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_rules_are_valid_and_fire_for_what_they_are_for() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool("test", "rules", CASES)


def test_every_query_of_the_dashboard_parses(tmp_path: Path) -> None:
    """As a rule, which is the only way to have promtool look at a query."""
    panels = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    values = {"$__rate_interval": "5m", "$namespace": ".*", "$pipeline": ".+"}
    for name, value in values.items():
        queries = [query.replace(name, value) for query in queries]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    assert f"{len(queries)} rules found" in promtool("check", "rules", file)
    assert len(queries) > 30
