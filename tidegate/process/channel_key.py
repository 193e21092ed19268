"""The key of a daemon: whoever has it may speak on the daemon's control connections and on those between its slots.

A key pair with a certificate that the pair has signed itself; every end of every connection shows it and trusts nothing
else (TLS 1.3). It is created by each daemon and travels in Spark's closure, which Spark encrypts. The Java that Spark
needs anyway makes it: `keytool` writes it, the driver's JVM reads it out. ADR 24 says when there is one.
"""

from __future__ import annotations

import os
import ssl


def accepting_context(key: str) -> ssl.SSLContext:
    """For the end that listens: the daemon, a slot that receives."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, key)
    context.num_tickets = 0  # nobody resumes a session, and a reader never wakes up for nothing
    return context


def dialling_context(key: str) -> ssl.SSLContext:
    """For the end that connects."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, key)


def _context(protocol: int, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # addresses are what Spark gives; the key says who it is
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=key[: key.index("-----BEGIN PRIVATE KEY-----")])
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)  # the ssl module reads keys from files only
    try:
        os.write(descriptor, key.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
