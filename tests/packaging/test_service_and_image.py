"""The systemd unit, the image's entry point, and the packages in the image agree with what Tidegate does."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT
from tidegate.config.deployment import RuntimeSettings
from tidegate.config.fields.units import derive_duration_ms
from tidegate.daemon.http.server import BEAT_LIMIT_S
from tidegate.daemon.service import CLOSE_AFTER_GRACE_S
from tidegate.spark.host import STOP_TIMEOUT_S

UNIT = ROOT / "packaging" / "systemd" / "tidegate@.service"
ENTRYPOINT = ROOT / "packaging" / "image" / "entrypoint.sh"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHER_THAN_TRACING = {"certifi", "charset-normalizer", "googleapis-common-protos", "requests", "urllib3"}
EXECUTOR = {
    "SPARK_HOME": "/spark",
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "512m",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_1": "-Dtwo=a b",
    "SPARK_JAVA_OPT_0": "-Done=1",
    "SPARK_JAVA_OPT_2": "-Dthree=$HOME",
}


def section(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names as they are
    unit.read(UNIT, encoding="utf-8")
    return unit[name]


def service() -> configparser.SectionProxy:
    return section("Service")


def seconds(text: str) -> float:
    return derive_duration_ms(text.replace("min", "m")) / 1000


def pins(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE))


def run_entrypoint(tmp_path: Path, *arguments: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """With programs that print what they were given, one argument a line."""
    for name in ("java", "tidegate"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return subprocess.run(
        ["sh", str(ENTRYPOINT), *arguments],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", **environ},
        timeout=30,
        check=False,
    )


def test_the_unit_does_not_restart_what_a_restart_cannot_cure() -> None:
    page = (ROOT / "docs" / "operations" / "running.md").read_text(encoding="utf-8")
    sentence = re.search(r"A supervisor should restart on .* and not on ([\d, and]+)\.", page)
    assert sentence is not None
    unit = service()
    assert unit["Restart"] == "on-failure"
    assert {"0", *unit["RestartPreventExitStatus"].split()} == set(re.findall(r"\d+", sentence[1]))


def test_the_unit_is_started_again_for_as_long_as_brokers_are_away() -> None:
    """A start that finds none ends with 1: ten starts were over, for good, before three brokers had read their logs."""
    assert section("Unit")["StartLimitIntervalSec"] == "0"
    assert "StartLimitBurst" not in section("Unit")
    assert 5 <= seconds(service()["RestartSec"]) <= 30
    assert "1" not in service()["RestartPreventExitStatus"].split()


def test_the_unit_waits_as_long_as_the_daemon_needs() -> None:
    unit, grace_s = service(), RuntimeSettings().shutdown_grace_ms / 1000
    assert unit["Type"] == "notify"
    assert seconds(unit["TimeoutStopSec"]) > grace_s + CLOSE_AFTER_GRACE_S + STOP_TIMEOUT_S
    assert seconds(unit["WatchdogSec"]) > BEAT_LIMIT_S


def test_the_page_makes_what_the_unit_relies_on() -> None:
    """Without its user a service ends with status 217; outside of its directories it may write nothing."""
    page = (
        (ROOT / "docs" / "deploy.md")
        .read_text(encoding="utf-8")
        .partition("## Without Kubernetes")[2]
        .partition("\n## ")[0]
    )
    unit = service()
    assert re.search(rf"^useradd --system .* {unit['User']}$", page, re.MULTILINE)
    assert f"/var/cache/{unit['CacheDirectory']}" in page
    assert (unit["ProtectSystem"], unit["PrivateTmp"]) == ("strict", "yes")
    assert all(
        each in page for each in (f"`/var/lib/{unit['StateDirectory']}`", "`ReadWritePaths=`", "`http.token_file: ")
    )
    assert unit["ExecStart"].split()[0] == "/opt/tidegate/bin/tidegate"
    assert "python3 -m venv /opt/tidegate" in page


def test_an_executor_is_what_spark_says_by_variables(tmp_path: Path) -> None:
    ran = run_entrypoint(tmp_path, "executor", environ=EXECUTOR)
    lines = ran.stdout.splitlines()
    assert lines[:6] == ["java", "-Done=1", "-Dtwo=a b", "-Dthree=$HOME", "-Xms512m", "-Xmx512m"]
    options = dict(zip(lines[9::2], lines[10::2], strict=True))
    assert lines[8] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert options == {
        "--driver-url": "spark://driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "app",
        "--hostname": "10.0.0.3",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_everything_else_is_a_command_of_tidegate(tmp_path: Path) -> None:
    ran = run_entrypoint(tmp_path, "run", "/etc/a b.yaml", environ={})
    assert ran.stdout.splitlines() == ["tidegate", "run", "/etc/a b.yaml"]


@pytest.mark.parametrize("missing", ["SPARK_DRIVER_URL", "SPARK_EXECUTOR_CORES", "SPARK_HOME"])
def test_an_executor_without_a_variable_does_not_start(tmp_path: Path, missing: str) -> None:
    ran = run_entrypoint(tmp_path, "executor", environ={k: v for k, v in EXECUTOR.items() if k != missing})
    assert ran.returncode != 0
    assert missing in ran.stderr
    assert ran.stdout == ""


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(f"!{parent}" in ignored for parent in (source, *map(str, Path(source).parents))), source


def extras_of_the_image() -> set[str]:
    (line,) = [line for line in MAKEFILE.splitlines() if line.endswith("-o requirements-runtime.lock")]
    return set(re.findall(r"--extra (\S+)", line))


def test_the_image_has_everything_that_a_pipeline_may_need() -> None:
    """A file with `aes_encrypt` passed on a laptop and ended its pod: the image has no pip to follow the advice by."""
    extras = set(PROJECT["optional-dependencies"])
    assert extras - extras_of_the_image() == {"jvm", "simulation", "docker", "dev"}
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").partition("## The image")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([\w-]+)` \| .* \| (yes|no)\b.* \|$", page, re.MULTILINE))
    assert rows == {name: "yes" if name in extras_of_the_image() else "no" for name in extras - {"docker", "dev"}}


def test_packages_of_the_image_are_those_of_the_tests_without_the_developers() -> None:
    """But for OpenTelemetry, which `make tracing` tests in an environment of its own."""
    runtime, everything = pins("requirements-runtime.lock"), pins("requirements.lock")
    assert {name for name in runtime if not name.startswith("opentelemetry-")} - everything.keys() <= OTHER_THAN_TRACING
    assert {name: pin for name, pin in runtime.items() if name in everything}.items() <= everything.items()
    extras = PROJECT["optional-dependencies"]
    for requirement in [*PROJECT["dependencies"], *(one for name in extras_of_the_image() for one in extras[name])]:
        assert re.split(r"[<>=\[]", requirement)[0].lower() in runtime, requirement
    assert {"pytest", "mypy", "ruff", "hypothesis"}.isdisjoint(runtime)


def test_a_lock_names_no_place_from_which_packages_come() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text(encoding="ascii")
        assert "://" not in text, lock.name
        pinned = re.findall(r"^[\w.-]+==.* \\\n    --hash=sha256:", text, re.MULTILINE)
        assert len(pinned) == len(re.findall(r"^\S", text, re.MULTILINE)), lock.name
