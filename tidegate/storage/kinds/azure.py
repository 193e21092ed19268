"""Azure Blob Storage."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from tidegate.storage.base import StorageOptions
from tidegate.storage.objects.clients import Recipe
from tidegate.storage.objects.credentials import ConnectionString
from tidegate.storage.objects.kind import ObjectStoreKind


class AzureStore(ObjectStoreKind):
    """The storage kind for Azure Blob Storage."""

    schemes = ("az",)
    example = "az://container/tidegate/orders"
    options = frozenset({"account", "endpoint", "credentials_file", "ca"})
    bucket_term = "container"

    @override
    def recipe(self, options: StorageOptions) -> Recipe:
        from obstore.store import AzureStore

        provider = ConnectionString(options.credentials_file) if options.credentials_file else None
        account = options.account or (provider.find_account() if provider is not None else "")
        return Recipe(
            AzureStore,
            {"account_name": account, "endpoint": options.endpoint},
            provider=provider,
            endpoint_variables=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        )


STORE: Final = AzureStore()
