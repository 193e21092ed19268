"""Opens the storage at an address in the pipeline file: selects among `storage/kinds` by the scheme of the address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from tidegate.modules import import_modules
from tidegate.storage import kinds
from tidegate.storage.base import NO_OPTIONS, Storage, StorageOptions, StorageUnsupported, StoreKind

OTHER_WORDS: Final = {
    "s3a": "s3://bucket/prefix",
    "s3n": "s3://bucket/prefix",
    "gcs": "gs://bucket/prefix",
    "abfs": "az://container/prefix, with `checkpoints.storage.account`",
    "abfss": "az://container/prefix, with `checkpoints.storage.account`",
    "wasb": "az://container/prefix, with `checkpoints.storage.account`",
    "wasbs": "az://container/prefix, with `checkpoints.storage.account`",
    "http": "s3://bucket/prefix, with `checkpoints.storage.endpoint`",
    "https": "s3://bucket/prefix, with `checkpoints.storage.endpoint`",
}
"""Schemes that users may try, and what to write instead."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):", re.ASCII)


class StorageOpener(Protocol):
    """The interface of `open_storage`; the simulation has another implementation."""

    def __call__(self, url: str, *, create: bool = True) -> Storage:
        """Opens the storage at an address."""


def discover_stores() -> Mapping[str, StoreKind]:
    """Returns kinds by scheme. Raises TypeError for a module without a store, or for a duplicate scheme."""
    found: dict[str, StoreKind] = {}
    for name, module in import_modules(kinds).items():
        one = getattr(module, "STORE", None)
        if not isinstance(one, StoreKind) or not found.keys().isdisjoint(one.schemes):
            raise TypeError(f"tidegate/storage/kinds/{name} has no STORE, or one whose schemes another one has")
        found |= dict.fromkeys(one.schemes, one)
    return MappingProxyType(found)


STORES: Final = discover_stores()


def scheme_of(address: str) -> str:
    """Returns the scheme in lower case; `file` for a path."""
    found = _SCHEME.match(address)
    return "file" if found is None else (found[1] or found[2]).lower()


def open_storage(
    url: str, *, create: bool = True, stays: bool = False, options: StorageOptions = NO_OPTIONS
) -> Storage:
    """Opens the storage at an address or path; if `create` is False, for reading only.

    With `stays`, nothing is written to a directory that has replaced the one that was opened.

    Raises StorageUnsupported for an unknown scheme, else StorageError.
    """
    if not url:
        raise StorageUnsupported("the address is empty: name a directory, or an object store")
    scheme = scheme_of(url)
    store = STORES.get(scheme)
    if store is not None:
        return store.open(url, create=create, stays=stays, options=options)
    raise StorageUnsupported(f"storage at {scheme}:// is not supported; {suggest_scheme(scheme)}")


def suggest_scheme(scheme: str) -> str:
    """Returns what to write instead of an address with this unsupported scheme."""
    known = ", ".join(store.example for store in dict.fromkeys(STORES.values()))
    return f"write {OTHER_WORDS[scheme]}" if scheme in OTHER_WORDS else f"there are {known}"


class Opener:
    """Opens the addresses of a pipeline. `options` apply to storage of the same kind as the checkpoint directory.

    Other storage is configured by the environment.
    """

    def __init__(self, directory: str, options: StorageOptions) -> None:
        self._scheme = scheme_of(directory)
        self._options = options

    def __call__(self, url: str, *, create: bool = True) -> Storage:
        """Opens the storage at an address."""
        return open_storage(url, create=create, options=self._options if scheme_of(url) == self._scheme else NO_OPTIONS)
