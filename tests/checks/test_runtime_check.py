"""Where executors elsewhere would look for the daemon."""

from __future__ import annotations

import pytest

from tidegate.checks.machine import find_address_problems
from tidegate.config.load import parse_pipeline

FILE = """
version: 1
name: orders
kafka: {{bootstrap.servers: "kafka:9092"}}
checkpoints: {{directory: /mnt/orders}}
spark: {spark}
sources: {{orders: {{topic: orders, format: raw}}}}
sinks: {{copy: {{from: orders, topic: copies, format: raw}}}}
"""


@pytest.mark.parametrize(
    ("spark", "address", "said"),
    [
        ("{master: yarn}", "127.0.1.1", "`spark.driver.host` is not set, and the name of this machine ("),
        ("{master: yarn, spark.driver.host: 127.0.0.1}", "10.0.0.1", "`spark.driver.host` is 127.0.0.1"),
        ("{master: yarn}", "10.0.0.1", ""),
        ("{master: yarn, spark.driver.host: 10.0.0.1}", "127.0.1.1", ""),
        ("{master: 'spark://127.0.0.1:7077'}", "127.0.1.1", ""),
        ("{master: 'local[2]'}", "127.0.1.1", ""),
    ],
)
def test_an_address_that_means_every_machine_itself_is_a_warning(spark: str, address: str, said: str) -> None:
    """As Debian writes the machine's own name into /etc/hosts. It works where all executors are on the machine."""
    loaded = parse_pipeline(FILE.format(spark=spark), "orders.yaml", {})
    found = find_address_problems(loaded, lambda _: address)
    assert [one.prevents_start for one in found] == ([False] if said else [])
    assert all(said in one.value for one in found)


@pytest.mark.parametrize("address", ["fd00::1", "[fd00::1]", "::1"])
def test_an_address_of_ipv6_is_refused_because_the_daemon_and_slots_listen_on_ipv4(address: str) -> None:
    """Slots that connect to it are refused by their own machine, or find no host of that name."""
    given = f"spark.driver.host: '{address}'"
    texts = [FILE.format(spark=f"{{master: {master}, {given}}}") for master in ("yarn", "local")]
    (found,), elsewhere = [find_address_problems(parse_pipeline(text, "orders.yaml", {})) for text in texts]
    assert (found.prevents_start, found.place) == (True, ("spark", "spark.driver.host"))
    assert f"`spark.driver.host` is {address}" in found.value
    assert elsewhere == [], "slots of a local master reach it by loopback"
