"""What goes wrong with a registry: it is away, which passes, or it says no, which a person has to mend."""

from __future__ import annotations

from tidegate.errors import TidegateError


class RegistryUnavailable(TidegateError):
    """It does not answer, or not yet: asking again may help."""

    code = "registry-away"
    exit_code = 1
    retriable = True


class RegistryRefused(TidegateError):
    """It has answered, and asking again would be answered the same. `error_code` is the registry's own, 0: none."""

    code = "registry-refused"
    exit_code = 2
    retriable = False

    def __init__(self, message: str, *, error_code: int = 0, remedy: str = "", setting: str = "") -> None:
        super().__init__(message, error_code=error_code, setting=setting)
        self.error_code, self.remedy, self.setting = error_code, remedy, setting


class RegistryPathMissing(RegistryRefused):
    """A 404 without the registry's own code: it does not have this part of the interface, or is no registry."""


class SchemaMissing(RegistryRefused):
    """It has no schema of this id, no such subject, or no such version."""

    code = "schema-missing"


class SchemaIncompatible(RegistryRefused):
    """It does not take a schema into a subject."""

    code = "schema-incompatible"
