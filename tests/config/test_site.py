"""A site file over a pipeline file: what counts, where a value came from, and where a mistake is reported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.config.errors import ConfigErrors
from tidegate.config.load import LoadedPipeline, parse_pipeline

PIPELINE = """version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092", client.id: orders}
spark: {master: "local[2]"}
checkpoints: {directory: /tmp/orders, interval: 5s}
sources:
  orders: {topic: orders, schema: {id: bigint}}
sinks:
  copy: {from: orders, topic: copies}
"""


def loaded(tmp_path: Path, site: str, pipeline: str = PIPELINE) -> LoadedPipeline:
    file = tmp_path / "site.yaml"
    file.write_text(site, encoding="utf-8")
    return parse_pipeline(pipeline, "orders.yaml", {"TIDEGATE_SITE": str(file), "DIRECTORY": "/var/lib/tidegate"})


def problems(found: LoadedPipeline) -> list[str]:
    return [str(problem) for problem in found.problems]


def test_the_site_counts_and_the_rest_of_a_section_stays(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        'kafka: {bootstrap.servers: "kafka:9092"}\nspark: {master: "local[4]", spark.executor.cores: "2"}\n'
        "parallelism: 4\ncheckpoints: {directory: '${DIRECTORY}'}\nhttp: {host: 0.0.0.0}\n",
    )
    settings = found.settings
    assert problems(found) == []
    assert settings.kafka == {"bootstrap.servers": "kafka:9092", "client.id": "orders"}
    assert settings.spark == {"master": "local[4]", "spark.executor.cores": "2"}
    assert settings.parallelism == 4
    assert str(settings.checkpoints.directory).endswith("/var/lib/tidegate")
    assert settings.checkpoints.interval_ms == 5000
    assert settings.http.host == "0.0.0.0"


def test_a_site_sets_the_other_clusters_of_the_file(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace("topic: copies", "topic: copies, cluster: us")
    pipeline += 'clusters: {us: {bootstrap.servers: "127.0.0.1:9192", client.id: orders}}\n'
    found = loaded(tmp_path, 'clusters: {us: {bootstrap.servers: "us:9092"}}\n', pipeline)
    assert problems(found) == []
    assert found.settings.clusters == {"us": {"bootstrap.servers": "us:9092", "client.id": "orders"}}
    assert found.origin(("clusters", "us", "bootstrap.servers")) == "site line 1"


def test_explain_names_the_file_that_a_value_is_from(tmp_path: Path) -> None:
    found = loaded(tmp_path, "\nparallelism: 4\nkafka: {bootstrap.servers: k}\n")
    assert found.origin(("parallelism",)) == "site line 2"
    assert found.origin(("kafka", "bootstrap.servers")) == "site line 3"
    assert found.origin(("kafka", "client.id")) == "file line 3"


def test_a_mistake_is_reported_in_its_own_file(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    text = "http:\n  port: 99999\ncheckpoints: {directory: '${NOWHERE}'}\n"
    found = loaded(tmp_path, text, PIPELINE + "verzion: 1\n")
    said = problems(found)
    assert any(line.startswith(f"{site}:2:9: http.port: ") for line in said), said
    assert any(line.startswith(f"{site}:3:26: checkpoints.directory: ") for line in said), said
    assert any(line.startswith("orders.yaml:10:1: ") and "verzion" in line for line in said), said


@pytest.mark.parametrize(
    "section", ["steps: []", "sources: {}", "name: other", "tests: []", "max_parallelism: 4", "nope: 1"]
)
def test_a_site_does_not_say_what_happens_to_records(tmp_path: Path, section: str) -> None:
    (said,) = problems(loaded(tmp_path, section + "\n"))
    assert said.startswith(f"{tmp_path / 'site.yaml'}:1:1: `{section.partition(':')[0]}` is not allowed in a site file")


@pytest.mark.parametrize("site", ["", "- a list\n", "kafka: {a: 1\n", "kafka: {}\nkafka: {}\n"])
def test_a_site_file_that_cannot_be_read_is_named(tmp_path: Path, site: str) -> None:
    with pytest.raises(ConfigErrors) as refused:
        loaded(tmp_path, site)
    assert re.match(rf"{tmp_path}/site\.yaml:\d:\d+: TIDEGATE_SITE: ", str(refused.value))
    assert "tidegate init" not in str(refused.value)


def test_a_site_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"none\.yaml:1:1: TIDEGATE_SITE: cannot be read: No such file"):
        parse_pipeline(PIPELINE, "orders.yaml", {"TIDEGATE_SITE": str(tmp_path / "none.yaml")})


def test_a_site_of_aliases_of_aliases_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["  x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"  x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, 10)]
    with pytest.raises(ConfigErrors, match=rf"{tmp_path}/site\.yaml:\d+:\d+: more than 50000 values"):
        loaded(tmp_path, "\n".join(["kafka:", *lines, ""]))
