"""Sealed objects: every truncation and every bit flip is found; names and what they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ids import CheckpointId, JournalSequence, OperatorName, SlotIndex
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.names import checkpoint_of_state, journal_name, journal_sequence, state_name

BODY = b'{"entry": "checkpoint", "id": 42}\n'


@given(st.binary(max_size=2000))
def test_a_sealed_body_comes_back(body: bytes) -> None:
    assert unseal("x", seal(body)) == body


def test_the_body_stays_readable() -> None:
    header, body = seal(BODY).split(b"\n", 1)
    assert header.startswith(b"tidegate-sealed 1 34 ")
    assert body == BODY


@pytest.mark.parametrize("body", [BODY, b"", b"x"])
def test_every_truncation_is_found(body: bytes) -> None:
    whole = seal(body)
    for length in range(len(whole)):
        with pytest.raises(ObjectCorrupt, match="journal/7 is corrupt"):
            unseal("journal/7", whole[:length])


def test_every_single_bit_flip_is_found() -> None:
    whole = seal(BODY)
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            with pytest.raises(ObjectCorrupt):
                unseal("x", bytes(flipped))


def test_bytes_behind_the_end_are_found() -> None:
    with pytest.raises(ObjectCorrupt, match="holds 35 bytes after the header where 34 were written"):
        unseal("x", seal(BODY) + b"!")


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ObjectCorrupt):
        unseal("x", data)


def test_names_and_their_parts_belong_together() -> None:
    assert journal_name(JournalSequence(42)) == "journal/000000000042.json"
    assert journal_sequence("journal/000000000042.json") == 42
    name = state_name(CheckpointId(7), OperatorName("totals"), SlotIndex(1))
    assert name == "state/000000000007-totals-1.state"
    assert checkpoint_of_state(name) == 7


@pytest.mark.parametrize(
    "name", ["journal/42.json", "journal/000000000042.json~", "state/x", "other/000000000001.json"]
)
def test_foreign_files_have_no_meaning(name: str) -> None:
    assert journal_sequence(name) is None
    assert checkpoint_of_state(name) is None
