"""What differs between two meanings, in one list."""

from __future__ import annotations

from tidegate.operators.fingerprint import StateFingerprint
from tidegate.plan.state_fingerprints import compare_fingerprints


def find_changes(old: StateFingerprint, new: StateFingerprint) -> list[str]:
    """What means something else, then the aggregates that are gone, then those that are new."""
    found = compare_fingerprints(old, new)
    return [*found.other, *(f"`{one}` is gone" for one in found.gone), *(f"`{one}` is new" for one in found.added)]
