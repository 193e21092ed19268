"""A port of a development broker is nobody else's, also while the broker is down."""

from __future__ import annotations

import socket

import pytest

from tidegate.dev.broker.server import is_free, reserve_ports


def test_a_reserved_port_is_refused_to_others_and_free_for_the_broker() -> None:
    (port,) = reserve_ports(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    assert is_free(port)


def test_a_broker_can_listen_on_a_reserved_port_again_and_again() -> None:
    (port,) = reserve_ports(1)
    for _ in range(2):
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", port)) as client,
        ):
            accepted, _address = server.accept()
            accepted.close()
            assert client.recv(1) == b""
            assert not is_free(port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_ports_are_all_different() -> None:
    ports = [*reserve_ports(20), *reserve_ports(20)]
    assert len(set(ports)) == 40
