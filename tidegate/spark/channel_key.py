"""Creates the key of a daemon (`process/channel_key.py`) with the Java that Spark needs anyway."""

from __future__ import annotations

import base64
import os
import secrets
import ssl
import subprocess
from pathlib import Path
from typing import Any, Final

from tidegate.spark.master import SparkUnavailable

ALIAS: Final = "tidegate"
KEYTOOL_S_MAX: Final = 60.0
_STORE: Final = "channel.p12"


def make_key(java: Path, jvm: Any, directory: Path) -> str:
    """Creates a key as PEM text, certificate first.

    `jvm` is py4j's; `directory` is private. Raises SparkUnavailable.
    """
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
    # py4j's reflection cannot access the key's own class, but it can access the output of a factory.
    plain = jvm.java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    factory = jvm.java.security.KeyFactory.getInstance("EC")
    private = factory.getKeySpec(keys.getKey(ALIAS, characters.toCharArray()), plain)
    key = base64.encodebytes(bytes(private.getEncoded())).decode()
    return f"{certificate}-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"
