"""A development broker secured as in a company: TLS with a private authority, passwords, access control lists.

Its plain listener, whose user may do everything, is for the test itself. In addition it has `SECURED` (SASL over TLS:
PLAIN and SCRAM-SHA-512) and `MUTUAL` (TLS with client certificates).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Self

import msgspec
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the library's stubs forget to export them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support import clients
from tests.support.certificates import Authority
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import START_S, reserve_ports
from tidegate.kafka.diagnosis import diagnose

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ADMIN_S: Final = 60.0


class Right(msgspec.Struct, frozen=True):
    """One ACL entry in Kafka's terms: `Right("TOPIC", "orders", "READ")`."""

    resource: str
    name: str
    operation: str
    prefixed: bool = False

    def binding(self, user: str) -> AclBinding:
        """Returns the ACL for this user, from any host."""
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        return AclBinding(
            ResourceType[self.resource],
            self.name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[self.operation],
            AclPermissionType.ALLOW,
        )

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{'*' if self.prefixed else ''}"


class SecuredBroker(DevelopmentBroker):
    """A broker with access control. `plain` contains users and passwords of SASL PLAIN; `add_scram_user` adds those of
    SCRAM.
    """

    def __init__(
        self, directory: Path, plain: Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self.authority = Authority(self.directory / "authority")
        self._secured, self._mutual = reserve_ports(2)
        store = self.directory / "broker-store.pem"
        store.write_text(self.authority.sign("broker").text(), encoding="ascii")
        users = "".join(f' user_{name}="{password}"' for name, password in (plain or {}).items())
        self.properties |= {
            **self._listeners(),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "listener.name.secured.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secured.plain.sasl.jaas.config": f"{_PLAIN}{users};",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": _SCRAM,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            **(properties or {}),
        }

    def _listeners(self) -> dict[str, str]:
        clients = {
            "PLAINTEXT": self._ports.client,
            "SECURED": self._secured,
            "MUTUAL": self._mutual,
        }
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in clients.items()]
        protocols = {
            "CONTROLLER": "PLAINTEXT",
            "PLAINTEXT": "PLAINTEXT",
            "SECURED": "SASL_SSL",
            "MUTUAL": "SSL",
        }
        return {
            "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{self._ports.controller}"]),
            "advertised.listeners": ",".join(addresses),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
        }

    @property
    def secured(self) -> str:
        """The address of SASL over TLS."""
        return f"127.0.0.1:{self._secured}"

    @property
    def mutual(self) -> str:
        """The address of TLS with client certificates; the common name is the user."""
        return f"127.0.0.1:{self._mutual}"

    def start(self, timeout_s: float = START_S) -> Self:
        """Starts the broker and opens an admin client."""
        super().start(timeout_s)
        self._admin = clients.admin({"bootstrap.servers": self.bootstrap})
        return self

    def kill(self) -> None:
        """Kills the broker. The admin client, which only its last reference closes, ends with it."""
        self.__dict__.pop("_admin", None)
        super().kill()

    def add_scram_user(self, user: str, password: str) -> None:
        """Adds a user or changes the password; the broker accepts the login when this returns."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        for future in self._admin.alter_user_scram_credentials([change]).values():
            future.result(ADMIN_S)
        login = {
            "bootstrap.servers": self.secured,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }
        wait_until(lambda: diagnose(login, ADMIN_S) is None, f"the broker lets {user} in")

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Adds ACL entries; they are effective when this returns."""
        bindings = [right.binding(user) for right in rights]
        for future in self._admin.create_acls(bindings).values():
            future.result(ADMIN_S)
        await_bindings(self._admin, bindings)

    def revoke(self, user: str, right: Right) -> None:
        """Removes one entry."""
        for future in self._admin.delete_acls([_just(right.binding(user))]).values():
            assert future.result(ADMIN_S), f"{right} was not granted to {user}"


def await_bindings(admin: AdminClient, bindings: Iterable[AclBinding]) -> None:
    """Waits until the broker knows these entries, because the controller answers before the broker does."""
    for binding in bindings:
        wait_until(partial(_has, admin, _just(binding)), f"the broker has {binding}")


def _has(admin: AdminClient, wanted: AclBindingFilter) -> bool:
    return bool(admin.describe_acls(wanted).result(ADMIN_S))


def _just(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
