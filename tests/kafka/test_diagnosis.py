"""What a list of servers says; the rest of the diagnosis needs somebody to talk to (`test_login.py`)."""

from __future__ import annotations

import pytest

from tidegate.kafka.diagnosis import _split


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("kafka-1:9094", ("kafka-1", 9094)),
        ("kafka-1", ("kafka-1", 9092)),
        ("[::1]:9094", ("::1", 9094)),
        ("[::1]", ("::1", 9092)),
        ("kafka:nine", ("kafka:nine", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port_that_may_be_left_out(server: str, address: tuple[str, int]) -> None:
    assert _split(server) == address
