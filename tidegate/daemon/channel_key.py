"""The key of a daemon: whoever has it may speak on the daemon's control connections and on those between its slots.

A key pair with a certificate that the pair has signed itself; every end of every connection shows it and trusts nothing
else (TLS 1.3). It is made anew by each daemon and travels in Spark's closure, which Spark encrypts. The Java that Spark
needs anyway makes it: `keytool` writes it, the driver's JVM reads it out. ADR 24 says when there is one.
"""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import subprocess
from pathlib import Path
from typing import Any, Final

from tidegate.daemon.spark_master import SparkUnavailable

ALIAS: Final = "tidegate"
KEYTOOL_S_MAX: Final = 60.0
_STORE: Final = "channel.p12"


def make_key(java: Path, jvm: Any, directory: Path) -> str:
    """A new key as PEM text, certificate first. `jvm` is py4j's; `directory` is private. Raises SparkUnavailable."""
    store, password = directory / _STORE, secrets.token_hex(16)
    command = [
        *(str(java.resolve().parent / "keytool"), "-genkeypair", "-alias", ALIAS, "-dname", f"CN={ALIAS}"),
        *("-keyalg", "EC", "-groupname", "secp256r1", "-startdate", "-1d", "-validity", "3650"),
        *("-storetype", "PKCS12", "-keystore", str(store), "-storepass:env", "STORE_PASSWORD"),
    ]
    environ = {**os.environ, "STORE_PASSWORD": password}
    try:
        made = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=KEYTOOL_S_MAX, check=False, errors="replace"
        )
        if made.returncode != 0:
            raise SparkUnavailable(
                f"no key for encrypted connections: {command[0]}: {made.stdout}{made.stderr}".strip()
            )
        return _read_out(jvm, store, password)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(
            f"no key for encrypted connections: {error}; use a Java with keytool, or see runtime.encryption"
        ) from error
    finally:
        store.unlink(missing_ok=True)


def _read_out(jvm: Any, store: Path, password: str) -> str:
    characters = jvm.java.io.CharArrayWriter()
    characters.write(password)
    keys = jvm.java.security.KeyStore.getInstance("PKCS12")
    stream = jvm.java.io.FileInputStream(str(store))
    keys.load(stream, characters.toCharArray())
    stream.close()
    certificate = ssl.DER_cert_to_PEM_cert(bytes(keys.getCertificate(ALIAS).getEncoded()))
    # The key's own class is not open to py4j's reflection, what a factory makes of it is.
    plain = jvm.java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    factory = jvm.java.security.KeyFactory.getInstance("EC")
    private = factory.getKeySpec(keys.getKey(ALIAS, characters.toCharArray()), plain)
    key = base64.encodebytes(bytes(private.getEncoded())).decode()
    return f"{certificate}-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"


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
