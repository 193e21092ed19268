"""Errors of a registry: it is temporarily unavailable, or it rejects a request, which a person has to resolve."""

from __future__ import annotations

from tidegate.errors import TidegateError


class RegistryUnavailable(TidegateError):
    """The registry does not answer or is not ready; a retry may succeed."""

    code = "registry-away"
    exit_code = 1
    retriable = True


class RegistryRefused(TidegateError):
    """The registry has rejected a request, and would reject a retry. `error_code` is the registry's, 0 for none."""

    code = "registry-refused"
    exit_code = 2
    retriable = False

    def __init__(self, message: str, *, error_code: int = 0, remedy: str = "", setting: str = "") -> None:
        super().__init__(message, error_code=error_code, setting=setting)
        self.error_code, self.remedy, self.setting = error_code, remedy, setting


class RegistryPathMissing(RegistryRefused):
    """A 404 without the registry's own code: the registry lacks this part of the interface, or is not a registry."""


class SchemaMissing(RegistryRefused):
    """The registry does not have a schema with this id, this subject, or this version."""

    code = "schema-missing"


class SchemaIncompatible(RegistryRefused):
    """The registry rejects a schema as incompatible with a subject."""

    code = "schema-incompatible"
