"""Parsing and validation of object store addresses, `s3://bucket/prefix`."""

from __future__ import annotations

import re
from typing import Final

import msgspec

PREFIX_MAX: Final = 500
"""Keys have at most 1024 bytes; object names need the rest."""

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)


class ObjectStoreAddress(msgspec.Struct, frozen=True):
    """A bucket (for Azure, a container) and a prefix in it; `prefix` has no slash at its ends and may be empty."""

    bucket: str
    prefix: str


def parse_place(address: str) -> ObjectStoreAddress:
    """Parses an address for which `find_problem` returns nothing."""
    _, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    return ObjectStoreAddress(bucket, prefix.strip("/"))


def find_problem(address: str, word: str) -> str:
    """Returns what is wrong with an address; empty if nothing is. `word` is the store's term for a bucket.

    Never quotes an address that may hold a credential.
    """
    if "@" in address or "?" in address or "#" in address:
        return (
            f"the address has more than a {word} and a prefix in it; credentials come from the environment, a role or "
            "`checkpoints.storage.credentials_file`, never from an address"
        )
    place = parse_place(address)
    if not place.bucket:
        return f"`{address[:80]}` names no {word}"
    if not _BUCKET.fullmatch(place.bucket):
        return f"`{place.bucket[:80]}` is no name of a {word}: letters, digits, `.`, `_` and `-`, two of them at least"
    if len(place.prefix) > PREFIX_MAX:
        return f"the prefix has {len(place.prefix)} characters, at most {PREFIX_MAX}"
    parts = place.prefix.split("/") if place.prefix else []
    if any(not _PART.fullmatch(part) or part in (".", "..") for part in parts):
        return f"`{address[:80]}`: a prefix has letters, digits, `.`, `_`, `=` and `-`, parted by single slashes"
    return ""
