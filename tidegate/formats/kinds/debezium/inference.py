"""Whether a topic has change events, and the rows in them: for `tidegate init`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.debezium.envelopes import NoChange, read_change


def find_rows(values: Sequence[bytes | None]) -> list[bytes] | None:
    """The rows of these events as JSON; None where most of the records are no change events."""
    rows: list[bytes] = []
    others = 0
    for value in filter(None, values):
        try:
            rows.append(read_change(value).row)
        except NoChange as event:  # one without a row says nothing
            others += event.kind is not FailureKind.UNSUPPORTED_CHANGE
        except (ValueError, RecursionError):
            others += 1
    return rows if len(rows) > others else None


def find_key(keys: Sequence[bytes | None]) -> list[str]:
    """The columns of the table's key, as the first key that is an object has them."""
    for key in filter(None, keys):
        try:
            found: Any = msgspec.json.decode(key)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("payload"), dict):
            found = found["payload"]
        if isinstance(found, dict):
            return list(found)
    return []
