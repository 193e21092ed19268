"""Encryption of traffic between daemon, slots and Spark: the decision, and Spark's settings. Pure; ADR 24.

Spark's own connections carry the closure with Tidegate's key, so they come first: without Spark's encryption,
Tidegate's would be worthless.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from tidegate.config.errors import PathProblem
from tidegate.config.fields.secrets import Text
from tidegate.config.properties import property_problem

STANDALONE: Final = "spark://"
SECRET: Final = "spark.authenticate.secret"  # noqa: S105 - the name of the setting
ENCRYPTED_SPARK: Final[Mapping[str, str]] = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""Spark properties of an application with encrypted connections.

YARN and Kubernetes create a secret for each application; a standalone cluster has its own.
"""


def leaves_machine(master: str) -> bool:
    """Tells whether slots may run on another machine than the daemon. `master` is `spark.master`."""
    if master.startswith("local"):
        return False
    if not master.startswith(STANDALONE):
        return True
    hosts = [address.strip().rpartition(":")[0] or address for address in master.removeprefix(STANDALONE).split(",")]
    return not all(_is_loopback(host) for host in hosts)


def decide_encryption(wanted: str, master: str) -> bool:
    """Decides whether to encrypt; `wanted` is `runtime.encryption`."""
    return wanted == "always" or (wanted == "auto" and leaves_machine(master))


def decide_encryption_problems(wanted: str, master: str, spark: Mapping[str, Text]) -> list[PathProblem]:
    """Returns why connections that must be encrypted would not be."""
    if not decide_encryption(wanted, master):
        return []
    way_out = "or set `runtime.encryption: never` on a private network"
    problems = [
        property_problem(
            name,
            "traffic, including the passwords in `kafka:`, would be in clear text",
            f"remove it, {way_out}",
        )
        for name in ("spark.authenticate", "spark.network.crypto.enabled")
        if str(spark.get(name, "true")).lower() != "true" and not _has_own_tls(name, spark)
    ]
    if master.startswith(STANDALONE) and SECRET not in spark:
        problems.append(
            PathProblem(
                ("master",),
                f"passwords would be sent in clear text: a standalone cluster encrypts with a secret of its own, and "
                f"`{SECRET}` is not set",
                f"set it here and in the cluster (`tidegate docs operations/security`, Encryption), {way_out}",
            )
        )
    return problems


def _has_own_tls(name: str, spark: Mapping[str, Text]) -> bool:
    """Tells whether Spark uses TLS with the user's certificates instead of its own encryption."""
    return name == "spark.network.crypto.enabled" and str(spark.get("spark.ssl.rpc.enabled", "")).lower() == "true"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
