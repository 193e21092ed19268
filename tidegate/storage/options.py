"""Access to an object store beyond its address: `checkpoints.storage` of a pipeline file."""

from __future__ import annotations

from typing import Final

import msgspec


class StorageOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options without secrets, since they are sent to the slots and displayed. If empty, the environment applies."""

    endpoint: str = ""
    region: str = ""
    account: str = ""
    credentials_file: str = ""
    """A path; each process that opens the store reads the file itself."""
    ca: str = ""
    """A path to certificates."""


NO_OPTIONS: Final = StorageOptions()
