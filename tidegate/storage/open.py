"""From the address in the pipeline file to a storage."""

from __future__ import annotations

from typing import ClassVar, Final, Protocol
from urllib.parse import urlsplit

from tidegate.storage.base import Storage, StorageError
from tidegate.storage.local import LocalStorage

_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss", "http", "https"})


class StorageUnsupported(StorageError):
    """The address asks for a kind of storage that this release cannot use."""

    code: ClassVar[str] = "storage-unsupported"
    exit_code: ClassVar[int] = 2
    retriable: ClassVar[bool] = False


class StorageOpener(Protocol):
    """What `open_storage` does. The simulation has another one."""

    def __call__(self, url: str, *, create: bool = True) -> Storage:
        """See `open_storage`."""


def open_storage(url: str, *, create: bool = True) -> Storage:
    """`file:///directory` or a path; with `create` False only to be read.

    Raises StorageUnsupported for other kinds, else StorageError.
    """
    scheme = urlsplit(url).scheme.lower() if "://" in url or url.startswith("file:") else ""
    if scheme in {"", "file"}:
        return LocalStorage(url, create=create)
    if scheme in _OBJECT_STORES:
        raise StorageUnsupported(
            f"{url}: object stores need the storage extra; not supported yet: use a directory that the daemon and all "
            "executors mount (file:///...)",
            url=url,
        )
    raise StorageUnsupported(f"{url}: unknown kind of storage {scheme!r}; use file:///directory", url=url)
