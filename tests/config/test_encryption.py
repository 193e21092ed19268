"""When connections between machines are encrypted, and what is said when they would not be."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tidegate.config.encryption import SECRET, decide_encryption, decide_encryption_problems, leaves_machine

SET = {SECRET: SecretStr("of the cluster")}


@pytest.mark.parametrize(
    ("master", "leaves"),
    [
        ("local", False),
        ("local[*]", False),
        ("local-cluster[2,1,512]", False),
        ("spark://127.0.0.1:7077", False),
        ("spark://localhost:7077,[::1]:7078", False),
        ("spark://localhost", False),
        ("spark://127.0.0.1:7077,10.0.0.5:7077", True),
        ("spark://master.example:7077", True),
        ("spark://master", True),
        ("yarn", True),
        ("k8s://https://10.0.0.1:443", True),
    ],
)
def test_X34_what_leaves_the_machine_is_encrypted(master: str, leaves: bool) -> None:
    assert leaves_machine(master) is leaves
    assert decide_encryption("auto", master) is leaves
    assert decide_encryption("always", master)
    assert not decide_encryption("never", master)


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:443", "local[2]"])
def test_X34_spark_makes_the_secret_where_it_can(master: str) -> None:
    assert decide_encryption_problems("auto", master, {}) == []
    assert decide_encryption_problems("always", master, {}) == []


def test_X34_a_standalone_cluster_without_a_secret_is_refused_with_both_ways_out() -> None:
    (problem,) = decide_encryption_problems("auto", "spark://master:7077", {})
    assert problem.path == ("master",)
    assert "in the cluster" in problem.remedy
    assert "`runtime.encryption: never`" in problem.remedy
    assert decide_encryption_problems("auto", "spark://master:7077", SET) == []
    assert decide_encryption_problems("never", "spark://master:7077", {}) == []
    assert decide_encryption_problems("auto", "spark://127.0.0.1:7077", {}) == []
    assert decide_encryption_problems("always", "spark://127.0.0.1:7077", {}) != []


@pytest.mark.parametrize("name", ["spark.authenticate", "spark.network.crypto.enabled"])
def test_X34_a_setting_that_takes_the_encryption_away_has_to_be_meant(name: str) -> None:
    (problem,) = decide_encryption_problems("auto", "yarn", {name: "false"})
    assert problem.path == (name,)
    assert decide_encryption_problems("auto", "yarn", {name: "true"}) == []
    assert decide_encryption_problems("never", "yarn", {name: "false"}) == []


def test_X34_tls_of_sparks_own_is_encryption_too() -> None:
    own = {"spark.network.crypto.enabled": "false", "spark.ssl.rpc.enabled": "true"}
    assert decide_encryption_problems("auto", "yarn", own) == []
