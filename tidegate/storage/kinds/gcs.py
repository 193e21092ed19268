"""Google Cloud Storage."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from tidegate.storage.base import StorageOptions
from tidegate.storage.objects.clients import Recipe
from tidegate.storage.objects.kind import ObjectStoreKind


class GoogleStore(ObjectStoreKind):
    """The storage kind for Google Cloud Storage."""

    schemes = ("gs",)
    example = "gs://bucket/tidegate/orders"
    options = frozenset({"credentials_file", "ca"})

    @override
    def recipe(self, options: StorageOptions) -> Recipe:
        """Leaves the key file to obstore, which supports all of its forms."""
        from obstore.store import GCSStore

        return Recipe(
            GCSStore, {"application_credentials": options.credentials_file}, endpoint_variables=("GOOGLE_BASE_URL",)
        )


STORE: Final = GoogleStore()
