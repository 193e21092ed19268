"""S3 and stores that implement its protocol."""

from __future__ import annotations

from typing import Final

from typing_extensions import override

from tidegate.storage.base import StorageOptions
from tidegate.storage.objects.clients import Recipe
from tidegate.storage.objects.credentials import SharedFile
from tidegate.storage.objects.kind import ObjectStoreKind


class S3Store(ObjectStoreKind):
    """The storage kind for S3 and compatible stores."""

    schemes = ("s3",)
    example = "s3://bucket/tidegate/orders"
    options = frozenset({"endpoint", "region", "credentials_file", "ca"})

    @override
    def recipe(self, options: StorageOptions) -> Recipe:
        """Also sets the endpoint for S3 alone, since one in the environment would take precedence over `endpoint`."""
        from obstore.store import S3Store

        file = options.credentials_file
        endpoints = {"endpoint": options.endpoint, "aws_endpoint_url_s3": options.endpoint}
        return Recipe(
            S3Store,
            {**endpoints, "region": options.region, "conditional_put": "etag"},
            {"disable_bulk_delete": True},
            SharedFile(file) if file else None,
            ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        )


STORE: Final = S3Store()
