"""Identifies the sender of a request from its connection, for the decisions of `admission.py`."""

from __future__ import annotations

from aiohttp import web

from tidegate.daemon.http.admission import HttpClientIdentity, is_own_machine
from tidegate.daemon.http.tls import Roles, ServerTls


def find_caller(request: web.Request, tls: ServerTls | None) -> tuple[HttpClientIdentity, str]:
    """Returns the client, and the name of its certificate for the log, if it has one."""
    transport = request.transport
    if transport is None:
        return HttpClientIdentity(own_machine=False), ""
    own_machine = is_own_machine(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    if tls is None:
        return HttpClientIdentity(own_machine), ""
    roles: Roles = tls.roles(transport.get_extra_info("peercert"))
    return HttpClientIdentity(own_machine, True, roles.reads, roles.operates), roles.name
