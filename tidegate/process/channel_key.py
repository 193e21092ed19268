"""The key of a daemon, which authenticates its control connections and the connections between its slots.

It consists of a key pair and a self-signed certificate; both ends of every connection present it and trust nothing else
(TLS 1.3). Each daemon creates its own, which travels in Spark's closure, encrypted by Spark. It is created with the
Java that Spark needs anyway: `keytool` writes it, and the driver's JVM reads it. ADR 24 describes when there is one.
"""

from __future__ import annotations

import os
import ssl


def accepting_context(key: str) -> ssl.SSLContext:
    """Creates the context of a listening end: the daemon, or a slot that receives."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, key)
    context.num_tickets = 0  # sessions are never resumed, and so readers are not woken up for tickets
    return context


def dialling_context(key: str) -> ssl.SSLContext:
    """Creates the context of a connecting end."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, key)


def _context(protocol: int, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Spark provides the addresses; the key proves the identity
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=key[: key.index("-----BEGIN PRIVATE KEY-----")])
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)  # the ssl module reads keys from files only
    try:
        os.write(descriptor, key.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
