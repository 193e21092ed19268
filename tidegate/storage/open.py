"""From the address in the pipeline file to a storage: the kinds in `storage/kinds`, by the scheme of the address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Protocol

from tidegate.modules import import_modules
from tidegate.storage import kinds
from tidegate.storage.base import Storage, StorageError, StoreKind

OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "http", "https"})
"""Schemes that people try; refused by name while no kind has them."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://|(file):", re.ASCII)


class StorageUnsupported(StorageError):
    """The address asks for a kind of storage that this release cannot use."""

    code: ClassVar[str] = "storage-unsupported"
    exit_code: ClassVar[int] = 2
    retriable: ClassVar[bool] = False


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


def open_storage(url: str, *, create: bool = True, stays: bool = False) -> Storage:
    """The storage at an address, or at a path; with `create` False only to be read.

    With `stays` nothing is put into a directory that has come in place of the one that was opened.

    Raises StorageUnsupported for an unknown scheme, else StorageError.
    """
    scheme = scheme_of(url)
    store = STORES.get(scheme)
    if store is not None:
        return store.open(url, create=create, stays=stays)
    if scheme in OBJECT_STORES:
        raise StorageUnsupported(
            f"{url}: object stores need the storage extra; not supported yet: use a directory that the daemon and all "
            "executors mount (file:///...)",
            url=url,
        )
    raise StorageUnsupported(f"{url}: unknown kind of storage {scheme!r}; use file:///directory", url=url)
