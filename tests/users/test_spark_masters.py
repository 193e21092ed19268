"""One small bounded pipeline on each kind of Spark master, exact on all of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.standalone_spark import StandaloneSpark
from tests.users.user import User, log_lines, numbers
from tidegate.config.encryption import SECRET

pytestmark = pytest.mark.slow

CLUSTER_SECRET = "of-the-whole-cluster-4711"


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster that has a secret: a master and one worker with two cores, on loopback."""
    with StandaloneSpark(tmp_path, cores=2, secret=CLUSTER_SECRET) as cluster:
        yield cluster.master


def check(user: User, master: str, *, encryption: str = "auto", log: str = "json", **spark: str) -> None:
    """Two slots, an exchange between them, 400 records: exact, with the slots' own log lines as JSON or as text."""
    source, out = user.numbers(partitions=2, bad_records="skip")
    user.document["spark"] = {"master": master, **spark}
    user.document.setdefault("runtime", {})["encryption"] = encryption
    user.document["parallelism"] = 2
    user.document["logging"] = {"format": log}
    user.document["steps"].append(
        {"name": "counted", "from": "shown", "key": "m", "aggregate": {"seen": "count(*)", "last": "last(id)"}}
    )
    user.document["sinks"]["shown_out"].update({"from": "counted", "key": "m"})
    user.produce(source, numbers(*((number, 1 + number % 5) for number in range(400))))
    user.produce(source, numbers((999, 0)))
    began = time.monotonic()
    ended = user.run()
    print(f"{master}: {time.monotonic() - began:.1f} s")
    ended.says(0, "DIVIDE_BY_ZERO")
    assert ("is encrypted" in ended.text) is (encryption == "always")
    assert CLUSTER_SECRET not in ended.text
    if log == "json":
        assert any("subtask" in line for line in log_lines(ended.text)), "a slot's line arrived"
    else:
        assert re.search("subtask=[01]", ended.text), "a slot's line arrived"
        with pytest.raises(json.JSONDecodeError):
            log_lines(ended.text)
    rows = user.rows(out)
    assert sorted(row["last"] for row in rows) == list(range(400))
    for m in (10, 5, 3, 2):
        seen = [row["seen"] for row in rows if row["m"] == m]
        assert seen == list(range(1, len(seen) + 1)), m


@pytest.mark.deep
def test_local_threads_with_a_text_log(user: User) -> None:
    check(user, "local[2]", log="text")


def test_X34_local_cluster_encrypted(user: User) -> None:
    check(user, "local-cluster[2,1,512]", encryption="always", log="text")


@pytest.mark.deep
def test_X34_standalone_cluster_encrypted(user: User, standalone: str) -> None:
    """On loopback nothing asks for it, so it is asked for here; beyond that it is the same."""
    spark = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", SECRET: CLUSTER_SECRET}
    check(user, standalone, encryption="always", **spark)
