"""What is said of a broker that does not answer what is sent."""

from __future__ import annotations

import pytest

from tidegate.kafka.versions import BrokerTooOld, BrokerVersion, refuse_old


def test_the_broker_is_named_with_its_version_and_what_it_lacks() -> None:
    old = BrokerVersion(2, "2.8", ("DescribeTransactions", "ListTransactions"))
    with pytest.raises(BrokerTooOld) as told:
        refuse_old([BrokerVersion(1, "4.3"), old], "kafka:9092")
    assert told.value.fields["text"] == (
        "broker 2 at kafka:9092 is Kafka 2.8: it does not answer DescribeTransactions, ListTransactions"
    )
    assert "3.3 or newer" in str(told.value.fields["remedy"])
    assert (told.value.exit_code, told.value.fields["property"]) == (2, "bootstrap.servers")


def test_brokers_that_answer_everything_pass_whatever_they_are_called() -> None:
    refuse_old([BrokerVersion(1, "4.3"), BrokerVersion(2, "3.3")], "kafka:9092")
