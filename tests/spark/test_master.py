"""A standalone Spark master that is there, comes late, or is not there."""

from __future__ import annotations

import logging
import socket
import threading

import pytest

from tests.waiting import wait_until
from tidegate.dev.broker.server import reserve_ports
from tidegate.spark import master as spark_master
from tidegate.spark.master import SparkUnavailable, derive_addresses, find_driver_host, wait_for_master


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        ("spark://one:7078", [("one", 7078)]),
        ("spark://one:1,two:2", [("one", 1), ("two", 2)]),
        ("spark://one", [("one", 7077)]),
        ("spark://[::1]:9", [("::1", 9)]),
        ("local[2]", []),
        ("local-cluster[2,1,512]", []),
        ("k8s://https://host:443", []),
        ("yarn", []),
    ],
)
def test_only_standalone_masters_have_addresses(master: str, wanted: list[tuple[str, int]]) -> None:
    assert derive_addresses(master) == wanted


@pytest.fixture
def closed() -> int:
    """A port at which nobody listens."""
    (port,) = reserve_ports(1)
    return port


def test_one_master_of_several_is_enough(closed: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        wait_for_master(f"spark://127.0.0.1:{closed},127.0.0.1:{server.getsockname()[1]}", 0.1)
    wait_for_master("local[2]", 0.0)


def test_a_master_that_is_not_there_is_told_with_address_and_reason(closed: int) -> None:
    with pytest.raises(
        SparkUnavailable, match=rf"spark://127.0.0.1:{closed} in 0.1 s \(.*refused\): start it"
    ) as caught:
        wait_for_master(f"spark://127.0.0.1:{closed}", 0.1)
    assert caught.value.exit_code == 1


def test_a_master_that_comes_late_is_waited_for(
    closed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_master, "PAUSE_S", 0.01)
    waiting = threading.Thread(target=wait_for_master, args=(f"spark://127.0.0.1:{closed}", 30.0))
    with caplog.at_level(logging.WARNING):
        waiting.start()
        wait_until(lambda: "yet" in caplog.text, "the wait is reported")
        with socket.create_server(("127.0.0.1", closed)):
            waiting.join(30)
    assert not waiting.is_alive()
    assert len(caplog.records) == 1


def test_executors_reach_the_daemon_where_sparks_driver_is() -> None:
    def nameless(_name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    assert find_driver_host("local-cluster[2,1,512]", {"spark.driver.host": "10.0.0.1"}, nameless) == "127.0.0.1"
    assert find_driver_host("yarn", {"spark.driver.host": "10.0.0.1"}, nameless) == "10.0.0.1"
    assert find_driver_host("yarn", {}, lambda _: "10.0.0.2") == "10.0.0.2"
    assert find_driver_host("yarn", {}, nameless) == "127.0.0.1", "it was a traceback"
