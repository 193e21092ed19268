"""obstore clients for one place: one for short requests, and others for operations that take long.

Their own retries are disabled. A failed request may have taken effect, and only `ObjectStorage` can find out.
"""

from __future__ import annotations

import datetime as dt
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.storage.base import StorageError, StorageOptions, StorageUnsupported
from tidegate.storage.objects.failures import RetryLimits, describe, judge

EXTRA: Final = "object-stores"
CONNECT_S: Final = 5.0


class ObjectStoreAddress(msgspec.Struct, frozen=True):
    """A bucket (for Azure, a container) and a prefix in it; `prefix` has no slash at its ends and may be empty."""

    bucket: str
    prefix: str


class Clients(msgspec.Struct, frozen=True):
    """Clients for one place, for use by any number of threads."""

    brisk: Any
    patient: Any
    """For writing large objects."""
    bulk: Any
    """For deleting many objects at once."""


class Recipe(msgspec.Struct, frozen=True):
    """The differences between providers.

    They are a class of obstore.store, its settings (empty ones are left to the environment), settings of the clients
    for single objects, and a source of credentials other than the environment.
    """

    make: Callable[..., Any]
    config: Mapping[str, Any]
    single_config: Mapping[str, Any] = {}
    provider: Callable[[], Any] | None = None
    endpoint_variables: tuple[str, ...] = ()
    """Environment variables of the endpoint, in order of precedence."""


def require_obstore(address: str) -> None:
    """Raises StorageUnsupported if the extra is not installed."""
    try:
        import obstore  # noqa: F401  # only to check that it is installed
    except ImportError as missing:
        raise StorageUnsupported(
            f"{address}: object stores need the package obstore, which is not installed on {socket.gethostname()}: "
            f"pip install 'tidegate[{EXTRA}]' there; the daemon and all executors need it",
            location=address,
        ) from missing


def make_clients(
    recipe: Recipe, place: ObjectStoreAddress, options: StorageOptions, limits: RetryLimits, location: str
) -> Clients:
    """Creates clients without sending a request. Raises StorageError."""
    from obstore.exceptions import BaseError

    common: dict[str, Any] = {"connect_timeout": dt.timedelta(seconds=min(CONNECT_S, limits.request_s))}
    named = (os.environ.get(name, "") for name in recipe.endpoint_variables)
    endpoint = options.endpoint or next(filter(None, named), "")
    common["allow_http"] = endpoint.startswith("http://")
    if options.ca:
        common["root_certificate"] = _read_certificates(options.ca, location)

    def make(seconds: float, more: Mapping[str, Any]) -> Any:
        wait = dt.timedelta(seconds=seconds)
        return recipe.make(
            place.bucket,
            prefix=place.prefix or None,
            config={name: value for name, value in {**recipe.config, **more}.items() if value != ""},
            client_options={**common, "timeout": wait},
            retry_config={"max_retries": 0, "retry_timeout": wait},
            credential_provider=recipe.provider,
        )

    try:
        return Clients(
            brisk=make(limits.request_s, recipe.single_config),
            patient=make(limits.large_request_s, recipe.single_config),
            bulk=make(limits.bulk_request_s, {}),
        )
    except BaseError as error:
        raise describe(location, "use", "the store", judge(error), 0.0) from None
    except ValueError:  # the only cause, and the message is obstore's own
        raise _bad_certificates(options.ca, location, "it holds no certificates in PEM") from None


def _read_certificates(path: str, location: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _bad_certificates(path, location, error.strerror or "it cannot be read") from None


def _bad_certificates(path: str, location: str, problem: str) -> StorageError:
    return StorageError(
        f"{location}: cannot take the certificates in {path} (`checkpoints.storage.ca`): {problem}; the daemon and all "
        "executors need the file",
        location=location,
        name=path,
        lasting=True,
    )
