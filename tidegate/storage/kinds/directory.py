"""A directory that the daemon and all executors mount."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from typing_extensions import override

from tidegate.storage.base import NO_OPTIONS, Storage, StorageOptions, StorageUnsupported, StoreKind
from tidegate.storage.local import LocalStorage


class DirectoryStore(StoreKind):
    """The storage kind for directories, including paths without a scheme."""

    schemes = ("file",)
    example = "file:///var/lib/tidegate"

    @override
    def check(self, address: str) -> str:
        path = address.removeprefix("file://")
        if not path.startswith("/") or ("://" in address and path == address):
            return f"`{address[:60]}` is not an absolute directory"
        if "\0" in address or (path != address and "\0" in unquote(path)):
            return "the directory has a NUL byte, which no path has"
        return ""

    @override
    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:
        if options != NO_OPTIONS:
            raise StorageUnsupported(f"{address}: a directory takes no options")
        return LocalStorage(address, create=create, stays=stays)


STORE: Final = DirectoryStore()
