"""Who may ask what over HTTP, decided from the ends of the connection and the headers."""

from __future__ import annotations

import pytest

from tidegate.daemon.http.admission import HttpClientIdentity, decide_host, decide_order, decide_reader, is_own_machine

HERE = HttpClientIdentity(own_machine=True)
ELSEWHERE = HttpClientIdentity(own_machine=False)
RIGHT = {"Host": "127.0.0.1:9095", "Authorization": "Bearer opensesame"}


@pytest.mark.parametrize(
    ("peer", "own", "local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.6", "10.0.0.5", False),
        ("::ffff:10.0.0.6", "10.0.0.5", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_only_the_own_machine_may_give_orders(peer: str, own: str, local: bool) -> None:
    assert is_own_machine((peer, 40000), (own, 9095)) is local


def test_a_connection_that_has_ended_is_of_nobody() -> None:
    assert not is_own_machine(None, ("127.0.0.1", 9095))
    assert not is_own_machine(("127.0.0.1", 40000), None)


@pytest.mark.parametrize(
    ("host", "meant"),
    [
        (None, True),
        ("localhost:9095", True),
        ("localhost.", True),
        ("127.0.0.1", True),
        ("127.1.2.3:9095", True),
        ("[::1]:9095", True),
        ("[::ffff:127.0.0.1]", True),
        ("Daemon.Example:9095", True),
        ("10.0.0.5:9095", True),
        ("", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:9095", False),
        ("10.0.0.6", False),
        ("0.0.0.0:9095", False),
        ("[::]:9095", False),
        ("2130706433", False),
        ("[::1", True),
        ("localhost:9095:9095", False),
    ],
)
def test_X33_a_host_header_means_this_server_by_loopback_or_its_own_names_only(host: str | None, meant: bool) -> None:
    assert (decide_host(host, {"daemon.example", "10.0.0.5"}) is None) is meant


def test_X33_an_order_needs_the_token_whatever_else_is_right() -> None:
    right = {"Host": "127.0.0.1:9095", "Authorization": "Bearer opensesame"}
    assert decide_order(right, (), "opensesame", HERE) is None
    for wrong in ({"Authorization": ""}, {"Authorization": "Bearer opensesam\xe9"}, {"Authorization": "opensesame"}):
        refusal = decide_order({**right, **wrong}, (), "opensesame", HERE)
        assert refusal is not None
        assert refusal.status == 401


@pytest.mark.parametrize(
    ("caller", "headers", "status"),
    [
        (HERE, RIGHT, None),
        (ELSEWHERE, RIGHT, 403),
        (ELSEWHERE._replace(encrypted=True), RIGHT, None),
        (ELSEWHERE._replace(encrypted=True), {**RIGHT, "Host": "orders.streams.svc"}, None),
        (HERE, {**RIGHT, "Host": "orders.streams.svc"}, 421),
        (ELSEWHERE._replace(encrypted=True), {}, 401),
        (HERE, {"Authorization": "Bearer \udcff"}, 401),  # a byte that is not UTF-8
        (ELSEWHERE._replace(encrypted=True, reads=True), {}, 401),
        (ELSEWHERE._replace(encrypted=True, operates=True), {}, None),
        (ELSEWHERE._replace(encrypted=True, operates=True), {"Origin": "https://evil.example"}, 403),
    ],
)
def test_X33_orders_come_from_here_or_over_tls_with_the_token_or_a_certificate(
    caller: HttpClientIdentity, headers: dict[str, str], status: int | None
) -> None:
    refusal = decide_order(headers, (), "opensesame", caller)
    assert (None if refusal is None else refusal.status) == status


@pytest.mark.parametrize(
    ("caller", "headers", "allowed"),
    [
        (ELSEWHERE, {}, False),
        (ELSEWHERE, RIGHT, True),
        (ELSEWHERE._replace(encrypted=True), {}, False),
        (ELSEWHERE._replace(encrypted=True), RIGHT, True),
        (ELSEWHERE._replace(encrypted=True, reads=True), {}, True),
        (ELSEWHERE._replace(encrypted=True, operates=True), {}, True),
    ],
)
def test_reading_needs_a_token_or_a_certificate_where_it_needs_anything(
    caller: HttpClientIdentity, headers: dict[str, str], allowed: bool
) -> None:
    assert (decide_reader(headers, ["opensesame"], caller) is None) is allowed
