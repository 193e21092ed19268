"""The stores that the common suite runs on: a directory, a small server (as S3, as Google), what `make stores` names.

It names them in a file of JSON lines, `TIDEGATE_STORES`: address (a prefix of its own for each test is added), options.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec

from tests.support.object_server import BUCKET, ObjectServer, write_credentials
from tidegate.storage.base import NO_OPTIONS, Storage, StorageOptions
from tidegate.storage.open import open_storage

VARIABLE: Final = "TIDEGATE_STORES"

Open = Callable[..., Storage]
"""Opens the same place each time; `create` as for open_storage."""


class NamedStore(msgspec.Struct, frozen=True):
    """One that runs already."""

    name: str
    address: str
    options: StorageOptions


def named_stores() -> dict[str, NamedStore]:
    """By name."""
    path = os.environ.get(VARIABLE)
    lines = Path(path).read_bytes().splitlines() if path else []
    return {one.name: one for one in (msgspec.json.decode(line, type=NamedStore) for line in lines)}


NAMED: Final = named_stores()
NAMES: Final = ["directory", "server", "google", *NAMED]


@contextmanager
def provided(name: str, tmp_path: Path) -> Iterator[Open]:
    """An empty place in the store of this name."""
    prefix = f"a/{uuid.uuid4().hex}"
    if name == "directory":
        yield _opener(f"file://{tmp_path}/{prefix}", NO_OPTIONS)
    elif name == "server":
        with ObjectServer() as server:
            yield opener_of(server.endpoint, tmp_path, f"s3://{BUCKET}/{prefix}")
    elif name == "google":
        with ObjectServer() as server:
            reached = {"GOOGLE_BASE_URL": server.endpoint, "GOOGLE_BEARER_TOKEN": "a token"}
            with mock.patch.dict(os.environ, reached):
                yield _opener(f"gs://{BUCKET}/{prefix}", NO_OPTIONS)
    else:
        yield _opener(f"{NAMED[name].address}/{prefix}", NAMED[name].options)


def opener_of(endpoint: str, tmp_path: Path, address: str = f"s3://{BUCKET}/a/b") -> Open:
    """Of something that speaks S3 and takes any credentials."""
    return _opener(address, StorageOptions(endpoint, credentials_file=str(write_credentials(tmp_path / "credentials"))))


def _opener(address: str, options: StorageOptions) -> Open:
    def opened(**how: Any) -> Storage:
        return open_storage(address, options=options, **how)

    return opened
