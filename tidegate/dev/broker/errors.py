"""What can go wrong with the development broker."""

from __future__ import annotations

from tidegate.errors import TidegateError


class BrokerFailed(TidegateError):
    """The broker could not be formatted or started, or it ended by itself."""

    code = "broker-failed"
    exit_code = 1
    retriable = False


class ArtifactsUnavailable(TidegateError):
    """The jars of the broker could not be fetched, or they are not the ones that we know."""

    code = "broker-artifacts-unavailable"
    exit_code = 1
    retriable = True
