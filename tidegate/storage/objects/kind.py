"""What the kinds of object stores have in common: from an address and options to an ObjectStorage."""

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
    """A provider: `recipe` is all that differs."""

    word: ClassVar[str] = "bucket"
    """What it calls a bucket."""

    @override
    def check(self, address: str) -> str:
        return find_problem(address, self.word)

    @override
    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:  # below
        """With `create` it is asked for something at once; a bucket is never created. An address always
        stands for one place, so there is nothing that `stays` could find.
        """
        return self.connect(address, options, LIMITS, look=create)

    def connect(self, address: str, options: StorageOptions, limits: RetryLimits, *, look: bool) -> ObjectStorage:
        """As `open`, with other limits. Raises StorageError."""
        if wrong := self.check(address):
            raise StorageUnsupported(f"{wrong}; for instance {self.example}")
        require_obstore(address)
        place = parse_place(address)
        try:
            recipe = self.recipe(options)
            if recipe.provider is not None:
                recipe.provider()  # so that what is wrong with it is reported now
        except CredentialsUnreadable as error:
            raise StorageError(f"{address}: {error}", location=address, lasting=True) from None
        storage = ObjectStorage(address, make_clients(recipe, place, options, limits, address), limits)
        if look:
            storage.look()
        return storage

    @abstractmethod
    def recipe(self, options: StorageOptions) -> Recipe:
        """How its clients are made. Raises CredentialsUnreadable."""
