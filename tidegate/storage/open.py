"""From the address in the pipeline file to a storage: the kinds in `storage/kinds`, by the scheme of the address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from tidegate.modules import import_modules
from tidegate.storage import kinds
from tidegate.storage.base import Storage, StorageUnsupported, StoreKind
from tidegate.storage.options import NO_OPTIONS, StorageOptions

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
"""Schemes that people try, and what to write."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):", re.ASCII)


class StorageOpener(Protocol):
    """What `open_storage` does. The simulation has another one."""

    def __call__(self, url: str, *, create: bool = True) -> Storage:
        """See `open_storage`."""


def discover_stores() -> Mapping[str, StoreKind]:
    """By scheme. Raises TypeError for a module without a store, or a second one of the same scheme."""
    found: dict[str, StoreKind] = {}
    for name, module in import_modules(kinds).items():
        one = getattr(module, "STORE", None)
        if not isinstance(one, StoreKind) or not found.keys().isdisjoint(one.schemes):
            raise TypeError(f"tidegate/storage/kinds/{name} has no STORE, or one whose schemes another one has")
        found |= dict.fromkeys(one.schemes, one)
    return MappingProxyType(found)


STORES: Final = discover_stores()


def scheme_of(address: str) -> str:
    """In lower case; `file` for a path."""
    found = _SCHEME.match(address)
    return "file" if found is None else (found[1] or found[2]).lower()


def open_storage(
    url: str, *, create: bool = True, stays: bool = False, options: StorageOptions = NO_OPTIONS
) -> Storage:
    """The storage at an address, or at a path; with `create` False only to be read.

    With `stays` nothing is put into a directory that has come in place of the one that was opened.

    Raises StorageUnsupported for an unknown scheme, else StorageError.
    """
    if not url:
        raise StorageUnsupported("an empty text is no address: name a directory, or an object store")
    scheme = scheme_of(url)
    store = STORES.get(scheme)
    if store is not None:
        return store.open(url, create=create, stays=stays, options=options)
    raise StorageUnsupported(f"an address with {scheme}:// is no kind of storage; {suggest_scheme(scheme)}")


def suggest_scheme(scheme: str) -> str:
    """What to write in place of an address of this scheme, which no kind has."""
    known = ", ".join(store.example for store in dict.fromkeys(STORES.values()))
    return f"write {OTHER_WORDS[scheme]}" if scheme in OTHER_WORDS else f"there are {known}"


class Opener:
    """What opens the addresses of a pipeline: the `options` are for those of the same kind as its checkpoint directory.

    Others are reached as the environment says.
    """

    def __init__(self, directory: str, options: StorageOptions) -> None:
        self._scheme = scheme_of(directory)
        self._options = options

    def __call__(self, url: str, *, create: bool = True) -> Storage:
        """See `open_storage`."""
        return open_storage(url, create=create, options=self._options if scheme_of(url) == self._scheme else NO_OPTIONS)
