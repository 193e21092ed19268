"""How an object store is reached, beyond its address: `checkpoints.storage` of a pipeline file."""

from __future__ import annotations

from typing import Final

import msgspec


class StorageOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """No secret is among them: they travel to the slots and are shown. Empty: as the environment says."""

    endpoint: str = ""
    region: str = ""
    account: str = ""
    credentials_file: str = ""
    """A path; each process that opens the store reads the file itself."""
    ca: str = ""
    """A path, as well."""


NO_OPTIONS: Final = StorageOptions()
