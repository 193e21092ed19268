"""The files of the chart agree with each other and with Tidegate, as far as that can be seen without helm.

What needs helm and an API server is in tests/chart and runs by `make chart`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tidegate import __version__
from tidegate.config.load import parse_pipeline
from tidegate.daemon.metric_catalogue import CATALOGUE, MetricKind
from tools import chart

TEMPLATES = sorted((chart.CHART / "templates").iterdir())
EXAMPLES = sorted((chart.CHART / "ci").glob("*-values.yaml"))
VALUES: dict[str, Any] = yaml.safe_load(chart.VALUES.read_text(encoding="utf-8"))
SCHEMA: dict[str, Any] = json.loads(chart.SCHEMA.read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((chart.CHART / "files" / "alerts.yaml").read_text(encoding="utf-8"))
ALERT_CASES = yaml.safe_load((chart.ROOT / "tests" / "chart" / "alerts.test.yaml").read_text(encoding="utf-8"))["tests"]
DASHBOARD = json.loads((chart.CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
METRICS_PAGE = (chart.ROOT / "docs" / "operations" / "metrics.md").read_text(encoding="utf-8")

OF_THE_PROCESS = frozenset({"process_cpu_seconds_total", "process_resident_memory_bytes"})
OF_PROMETHEUS = frozenset({"up"})
SUFFIXES = ("_bucket", "_count", "_sum")
SPARK_CALLS = {
    "pods": {"create", "delete", "deletecollection", "get", "list", "watch"},
    "configmaps": {"create", "deletecollection"},
    "services": {"deletecollection"},
    "persistentvolumeclaims": {"deletecollection", "list"},
}
"""By the audit log of a real API server, from which tests/chart reads it again."""


def merged(below: Any, above: Any) -> Any:
    """As helm merges values."""
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {key: merged(below.get(key), value) for key, value in above.items()}
    return above


def problems(values: Any) -> list[str]:
    """What the chart's schema says of values given on top of the chart's own."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [
        f"{'.'.join(map(str, found.absolute_path))}: {found.message}"
        for found in validator.iter_errors(merged(VALUES, values))
    ]


def metric_names(expression: str) -> set[str]:
    """Names of series in a query: whatever looks like one of ours, of the process's or of Prometheus itself."""
    return set(re.findall(r"\b(?:tidegate|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression)))


def exported() -> set[str]:
    """Every series that a daemon has."""
    names = set(OF_THE_PROCESS | OF_PROMETHEUS)
    for spec in CATALOGUE.values():
        names |= {spec.name + end for end in SUFFIXES} if spec.kind is MetricKind.HISTOGRAM else {spec.name}
    return names


def expressions() -> Iterator[tuple[str, str]]:
    """Of alerts and of the dashboard, by what they are for."""
    for group in ALERTS["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))


def test_schema_and_readme_are_generated_from_models_and_values() -> None:
    assert chart.SCHEMA.read_text(encoding="utf-8") == chart.render_schema(), "run: python -m tools.chart"
    assert chart.README.read_text(encoding="utf-8") == chart.render_readme(), "run: python -m tools.chart"


def test_the_schema_is_one_of_2020_12_and_strict() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    loose = [
        name
        for name, value in SCHEMA["properties"].items()
        if "properties" in value and value.get("additionalProperties") is not False
    ]
    assert SCHEMA["additionalProperties"] is False
    assert loose == []


def test_the_charts_own_values_are_valid_and_all_described() -> None:
    assert problems({}) == []
    assert chart.find_undescribed(chart.VALUES.read_text(encoding="utf-8")) == []
    assert set(VALUES) == set(SCHEMA["properties"]) - {"global"}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_values_of_the_examples_are_valid(file: Path) -> None:
    assert problems(yaml.safe_load(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "'replicas' was unexpected"),
        ({"image": {"digest": "sha256:1"}}, "image.digest"),
        ({"spark": {"mode": "cluster"}}, "spark.mode"),
        ({"spark": {"executor": {"memory": "512Mi"}}}, "spark.executor.memory"),
        ({"http": {"port": 0}}, "http.port"),
        ({"checkpoints": {"volume": {"accessModes": ["ReadWriteOncePod"]}}}, "checkpoints.volume.accessModes"),
        ({"secrets": {"env": [{"name": "A", "secretName": "s"}]}}, "'key' is a required property"),
        ({"pipeline": {"name": "orders"}}, "is not of type 'string'"),
        ({"settings": {"paralelism": 2}}, "'paralelism' was unexpected"),
        ({"settings": {"parallelism": 0}}, "settings.parallelism"),
        ({"settings": {"steps": []}}, "'steps' was unexpected"),
        ({"settings": {"checkpoints": {"interval": 5}}}, "settings.checkpoints.interval"),
        ({"settings": {"checkpoints": {"intervall": "5s"}}}, "'intervall' was unexpected"),
        ({"settings": {"kafka": {"bootstrap.server": "k"}}}, "bootstrap.server"),
        ({"settings": {"registry": {"username": 1}}}, "settings.registry"),
        ({"start": {"acceptGone": True}}, "start.acceptGone: True is not of type 'integer', 'null'"),
        ({"start": {"acceptGone": -1}}, "start.acceptGone"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_with_their_place(values: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in problems(values)), problems(values)


@pytest.mark.parametrize("number", [None, 0, 42])
def test_what_is_accepted_as_gone_is_a_checkpoint_or_nothing(number: int | None) -> None:
    assert problems({"start": {"acceptGone": number}}) == []


def test_settings_are_parts_of_a_pipeline_file_of_which_nothing_is_required() -> None:
    assert problems({"settings": {"checkpoints": {"retained": 5}, "registry": {"username": "u"}, "kafka": {}}}) == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_pipelines_of_the_examples_are_valid(file: Path, tmp_path: Path) -> None:
    values = yaml.safe_load(file.read_text(encoding="utf-8"))
    site = tmp_path / "site.yaml"
    site.write_text(yaml.safe_dump(values.get("settings", {}) | {"logging": {}}), encoding="utf-8")
    if "pipeline" in values:
        environ = {"TIDEGATE_SITE": str(site), "KAFKA_PASSWORD": "secret"}
        assert parse_pipeline(values["pipeline"], "pipeline.yaml", environ).problems == ()


def test_every_value_that_templates_name_exists() -> None:
    missing = []
    for template in TEMPLATES:
        for path in chart.find_value_names(template.read_text(encoding="utf-8")):
            found: Any = VALUES
            for part in path.split("."):
                if path.startswith("settings."):
                    break  # what it has is the user's
                if not isinstance(found, dict) or part not in found:
                    missing.append(f"{template.name}: .Values.{path}")
                    break
                found = found[part]
    assert missing == []


def test_the_role_is_what_spark_calls_and_nothing_else() -> None:
    text = (chart.CHART / "templates" / "rbac.yaml").read_text(encoding="utf-8")
    rules = re.findall(r"resources: \[(\w+)\]\s+verbs: \[([\w, ]+)\]", text)
    assert {resource: set(verbs.split(", ")) for resource, verbs in rules} == SPARK_CALLS
    assert text.count("verbs:") == len(rules)
    assert "kind: ClusterRole" not in text


def test_the_version_is_that_of_tidegate() -> None:
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert described["appVersion"] == __version__


def test_alerts_and_dashboard_ask_for_exported_series_only() -> None:
    known = exported()
    unknown = [f"{what}: {name}" for what, query in expressions() for name in metric_names(query) - known]
    assert unknown == []
    assert all(metric_names(query) for _, query in expressions())


def test_pipelines_of_one_name_in_several_namespaces_are_told_apart() -> None:
    """The same file everywhere: `orders` of staging kept the alerts of a dead `orders` of prod from firing."""
    groupings = [
        (what, re.split(r",\s*", labels))
        for what, query in expressions()
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    ]
    assert len(groupings) > 60
    assert [each for each in groupings if "pipeline" in each[1] and "namespace" not in each[1]] == []
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    chosen = 'namespace=~"$namespace",pipeline=~"$pipeline"'
    assert [query for query in queries if query.count("$pipeline") != query.count(chosen)] == []
    namespace, pipeline = DASHBOARD["templating"]["list"][1:]
    assert (namespace["name"], namespace["includeAll"]) == ("namespace", True)
    assert namespace["allValue"] == ".*", "without Kubernetes there is no such label"
    assert pipeline["query"]["query"] == 'label_values(tidegate_build_info{namespace=~"$namespace"}, pipeline)'


def test_every_alert_has_severity_summary_and_a_section_that_exists() -> None:
    names = set()
    for rule in ALERTS["groups"][0]["rules"]:
        names.add(rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        named = re.findall(r"`tidegate docs ([a-z/-]+)`, ([^);]+)", rule["annotations"]["description"])
        assert named, f"{rule['alert']} names no page"
        for page, section in named:
            text = (chart.ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
            assert section in re.findall(r"^#+ (.+)$", text, re.MULTILINE), f"{rule['alert']}: {section}"
    assert len(names) == len(ALERTS["groups"][0]["rules"])


def test_every_row_of_the_runbook_has_its_alerts_and_every_alert_a_row() -> None:
    """And what the rows ask for is exported, in the alert as in the row."""
    table = METRICS_PAGE.partition("What to watch first")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    named = {row[0]: re.findall(r"`(Tidegate\w+)`", row[2]) for row in rows}
    assert sorted(alert for alerts in named.values() for alert in alerts) == sorted(
        rule["alert"] for rule in ALERTS["groups"][0]["rules"]
    )
    assert [row[0] for row in rows if not named[row[0]] and not row[2].startswith("none")] == []
    assert all(metric_names(row[1]) and metric_names(row[1]) <= exported() for row in rows)


def test_panels_have_ids_of_their_own_and_fit_the_grid() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    cells = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(cells)) == len(cells)


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    alerts = {rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]}
    expectations = [expectation for case in ALERT_CASES for expectation in case["alert_rule_test"]]
    assert {one["alertname"] for one in expectations if one.get("exp_alerts")} == alerts
    assert {one["alertname"] for one in expectations if not one.get("exp_alerts")} == alerts


def test_annotations_that_cases_expect_are_those_of_the_alerts() -> None:
    """Only `make chart` runs the cases, so a reworded annotation would go unnoticed until a release."""
    annotations = {rule["alert"]: rule["annotations"] for group in ALERTS["groups"] for rule in group["rules"]}
    wrong = [
        (expectation["alertname"], name, text)
        for case in ALERT_CASES
        for expectation in case["alert_rule_test"]
        for alert in expectation.get("exp_alerts", ())
        for name, text in alert["exp_annotations"].items()
        if not renders_to(annotations[expectation["alertname"]][name], text)
    ]
    assert wrong == []


def renders_to(template: str, text: str) -> bool:
    """Whether a template of Prometheus can render to a text: an action, or a `with` block, stands for any text."""
    constant = re.split(r"\{\{ with .*?\{\{ end \}\}|\{\{.*?\}\}", template)
    return re.fullmatch(".*".join(map(re.escape, constant)), text, re.DOTALL) is not None


def test_a_reworded_annotation_does_not_render_to_the_expected_text() -> None:
    assert renders_to("{{ $value }} checkpoints of {{ $labels.pipeline }} failed", "3 checkpoints of x failed")
    assert not renders_to("{{ $value }} checkpoints of {{ $labels.pipeline }} have failed", "3 checkpoints of x failed")
