"""Common base of object store kinds: parses an address (`s3://bucket/prefix`) and creates an ObjectStorage from it."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import ClassVar, Final

from typing_extensions import override

from tidegate.storage.base import Storage, StorageError, StorageOptions, StorageUnsupported, StoreKind
from tidegate.storage.objects.clients import ObjectStoreAddress, Recipe, make_clients, require_obstore
from tidegate.storage.objects.credentials import CredentialsUnreadable
from tidegate.storage.objects.failures import LIMITS, RetryLimits
from tidegate.storage.objects.storage import ObjectStorage

PREFIX_MAX: Final = 500
"""Keys have at most 1024 bytes; object names need the rest."""

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)


def parse_place(address: str) -> ObjectStoreAddress:
    """Parses an address for which `find_problem` returns nothing."""
    _, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    return ObjectStoreAddress(bucket, prefix.strip("/"))


def find_problem(address: str, term: str) -> str:
    """Returns what is wrong with an address; empty if nothing is. `term` is the store's term for a bucket.

    Never quotes an address that may hold a credential.
    """
    if "@" in address or "?" in address or "#" in address:
        return (
            f"the address has more than a {term} and a prefix in it; credentials come from the environment, a role or "
            "`checkpoints.storage.credentials_file`, never from an address"
        )
    place = parse_place(address)
    if not place.bucket:
        return f"`{address[:80]}` names no {term}"
    if not _BUCKET.fullmatch(place.bucket):
        return (
            f"`{place.bucket[:80]}` is not a valid {term} name: letters, digits, `.`, `_` and `-`, two of them at least"
        )
    if len(place.prefix) > PREFIX_MAX:
        return f"the prefix has {len(place.prefix)} characters, at most {PREFIX_MAX}"
    parts = place.prefix.split("/") if place.prefix else []
    if any(not _PART.fullmatch(part) or part in (".", "..") for part in parts):
        return f"`{address[:80]}`: a prefix has letters, digits, `.`, `_`, `=` and `-`, separated by single slashes"
    return ""


class ObjectStoreKind(StoreKind):
    """A provider; providers differ only in `recipe`."""

    bucket_term: ClassVar[str] = "bucket"
    """The provider's term for a bucket."""

    @override
    def check(self, address: str) -> str:
        return find_problem(address, self.bucket_term)

    @override
    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:
        """With `create`, checks access with one request; a bucket is never created.

        `stays` has no effect, since an address always refers to the same place.
        """
        return self.connect(address, options, LIMITS, look=create)

    def connect(self, address: str, options: StorageOptions, limits: RetryLimits, *, look: bool) -> ObjectStorage:
        """Opens the storage with explicit limits; with `look`, checks access. Raises StorageError."""
        if wrong := self.check(address):
            raise StorageUnsupported(f"{wrong}; for instance {self.example}")
        require_obstore(address)
        place = parse_place(address)
        try:
            recipe = self.recipe(options)
            if recipe.provider is not None:
                recipe.provider()  # reports an invalid file now
        except CredentialsUnreadable as error:
            raise StorageError(f"{address}: {error}", location=address, lasting=True) from None
        storage = ObjectStorage(address, make_clients(recipe, place, options, limits, address), limits)
        if look:
            storage.look()
        return storage

    @abstractmethod
    def recipe(self, options: StorageOptions) -> Recipe:
        """Returns how to create the clients. Raises CredentialsUnreadable."""
