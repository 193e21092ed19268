"""Addresses of object stores, `s3://bucket/prefix`: what they mean, and what is wrong with one."""

from __future__ import annotations

import re
from typing import Final

import msgspec

PREFIX_MAX: Final = 500
"""Keys are 1024 bytes long at most; names of objects need the rest."""

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}", re.ASCII)
_PART: Final = re.compile(r"[A-Za-z0-9._=-]+", re.ASCII)


class ObjectStoreAddress(msgspec.Struct, frozen=True):
    """A bucket (Azure: a container), and where in it; `prefix` has no slash at its ends and may be empty."""

    bucket: str
    prefix: str


def parse_place(address: str) -> ObjectStoreAddress:
    """Of an address that `find_problem` has nothing against."""
    _, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    return ObjectStoreAddress(bucket, prefix.strip("/"))


def find_problem(address: str, word: str) -> str:
    """What is wrong with it, empty if nothing is; `word` is what the store calls a bucket.

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
