"""`checkpoints.storage`: how an object store is reached. It contains no secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from tidegate.config.fields import hosts
from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import File, ValueCheck, refusal, require_text
from tidegate.storage.base import StorageOptions

_TEXT = {"type": "string"}
_REMEDY = "for instance https://minio.example:9000"
_FROM_OUTSIDE = (
    "credentials do not belong in a pipeline file: set them in the environment of the daemon and of the executors, "
    "give "
    "both a role, or name a file in `credentials_file`"
)


def _endpoint(value: object) -> str:
    text = require_text(value, "an address", _REMEDY).rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if "@" in text or parts.query or parts.fragment:
        raise refusal("the endpoint has more than a host, a port and a path in it", _FROM_OUTSIDE)
    if usable and not hosts.can_be_host(parts.hostname or ""):
        raise refusal(f"`{text[:60]}` is not an address", hosts.REMEDY)
    if not usable or any(ord(character) <= 32 or ord(character) == 127 for character in text):
        raise refusal(f"`{text[:60]}` is not an address", _REMEDY)
    return text


def _word(value: object) -> str:
    text = require_text(value, "a name")
    if len(text) > 100 or not text.replace("-", "").replace(".", "").isalnum() or not text.isascii():
        raise refusal(f"`{text[:60]}` is not a name", "letters, digits, `-` and `.`")
    return text


class StorageSettings(Settings):
    """How the object store is reached. What is left out comes from the environment: `AWS_REGION`, `AWS_ENDPOINT_URL`,
    `AZURE_STORAGE_ACCOUNT_NAME` and so on, and so do credentials where no `credentials_file` is named.
    """

    TITLE: ClassVar[str] = "Object stores"
    INSIDE: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            "access_key", "access_key_id", "secret_key", "secret_access_key", "session_token", "account_key",
            "sas_token", "credentials", "username", "password", "token",
        ),
        _FROM_OUTSIDE,
    )  # fmt: skip

    endpoint: Annotated[
        str | None,
        ValueCheck(_endpoint, {**_TEXT, "examples": ["https://minio.example:9000"]}),
        Field(description="For `s3://` and `az://`: the address of a store that is not the provider's own."),
    ] = None
    region: Annotated[
        str | None, ValueCheck(_word, _TEXT), Field(description="For `s3://`: the region of the bucket.")
    ] = None
    account: Annotated[str | None, ValueCheck(_word, _TEXT), Field(description="For `az://`: the storage account.")] = (
        None
    )
    credentials_file: Annotated[
        File | None,
        Field(
            description="A file with credentials that the daemon and every executor read: for `s3://` a shared "
            "credentials file (profile `default`), for `gs://` a key file, for `az://` a connection string."
        ),
    ] = None
    ca: Annotated[File | None, Field(description="Certificates to trust in addition to the machine's, in PEM.")] = None

    @property
    def options(self) -> StorageOptions:
        """The options in the form that stores accept."""
        return StorageOptions(
            endpoint=self.endpoint or "",
            region=self.region or "",
            account=self.account or "",
            credentials_file=self.credentials_file or "",
            ca=self.ca or "",
        )
