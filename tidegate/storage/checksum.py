"""The envelope of all stored objects: one readable header line, followed by the unchanged body.

The header is `tidegate-sealed 1 <length> <sha256>` and a line feed. Every truncation and every change of a single bit
is detected: the digest covers the body, and each body has exactly one valid header.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from tidegate.storage.base import ObjectCorrupt

_HEADER: Final = re.compile(rb"tidegate-sealed 1 (0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n")
HEADER_BYTES_MAX: Final = 128


def seal(body: bytes) -> bytes:
    """Returns the body with its header line in front."""
    return b"tidegate-sealed 1 %d %s\n" % (len(body), hashlib.sha256(body).hexdigest().encode()) + body


def unseal(name: str, data: bytes) -> bytes:
    """Returns the body of a sealed object. Raises ObjectCorrupt, which names the object and the problem."""
    header = _HEADER.match(data[:HEADER_BYTES_MAX])
    if header is None:
        raise _corrupt(name, f"it does not begin with the header of a sealed object ({len(data)} bytes in all)")
    body = data[header.end() :]
    length = int(header[1])
    if len(body) != length:
        raise _corrupt(name, f"it holds {len(body)} bytes after the header where {length} were written")
    if hashlib.sha256(body).hexdigest().encode() != header[2]:
        raise _corrupt(name, "its content does not match its checksum")
    return body


def _corrupt(name: str, problem: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        f"{name} is corrupt: {problem}; restore the file from a backup, or start the pipeline with a new checkpoint "
        "directory",
        name=name,
        problem=problem,
    )
