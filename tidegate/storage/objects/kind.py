"""Common base of object store kinds: creates an ObjectStorage from an address and options."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from typing_extensions import override

from tidegate.storage.base import Storage, StorageError, StorageUnsupported, StoreKind
from tidegate.storage.objects.address import find_problem, parse_place
from tidegate.storage.objects.clients import Recipe, make_clients, require_obstore
from tidegate.storage.objects.credentials import CredentialsUnreadable
from tidegate.storage.objects.storage import ObjectStorage
from tidegate.storage.objects.tries import LIMITS, RetryLimits
from tidegate.storage.options import StorageOptions


class ObjectStoreKind(StoreKind):
    """A provider; providers differ only in `recipe`."""

    word: ClassVar[str] = "bucket"
    """The provider's term for a bucket."""

    @override
    def check(self, address: str) -> str:
        return find_problem(address, self.word)

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
