"""Errors of the development broker."""

from __future__ import annotations

from tidegate.errors import TidegateError


class BrokerFailed(TidegateError):
    """The broker could not be formatted or started, or it ended unexpectedly."""

    code = "broker-failed"
    exit_code = 1
    retriable = False


class ArtifactsUnavailable(TidegateError):
    """The jars of the broker could not be fetched, or they do not match the pinned checksums."""

    code = "broker-artifacts-unavailable"
    exit_code = 1
    retriable = True
