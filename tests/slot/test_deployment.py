"""What a slot knows of schemas, and what it asks for."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tidegate.formats.schemas import SchemaKind, SchemaText, UnknownSchema
from tidegate.slot.deployment import ID_MAX, UNKNOWN_MAX, UNKNOWN_S, WAITING_MAX, SlotSchemas
from tidegate.task.messages import SchemaAnswer, SchemasWanted, SchemaUnfit, SlotMessage

FIRST = SchemaText(SchemaKind.AVRO, '"int"', id=1)


class Asking:
    """A slot that has the first schema; what it asks is in `sent`."""

    def __init__(self) -> None:
        self.sent: list[SlotMessage] = []
        self.now = 0.0
        self.schemas = SlotSchemas([FIRST, SchemaText(SchemaKind.AVRO, "file")], self.sent.append, lambda: self.now)


def test_what_the_plan_has_is_there_at_once() -> None:
    one = Asking()
    assert one.schemas.get(1) is FIRST
    assert one.sent == []


def test_another_is_asked_for_once_and_there_after_the_answer() -> None:
    one = Asking()
    assert [one.schemas.get(2), one.schemas.get(2)] == [None, None]
    assert one.sent == [SchemasWanted((2,))]
    second = SchemaText(SchemaKind.AVRO, '"long"', id=2)
    one.schemas.on_answer(SchemaAnswer(2, second))
    assert one.schemas.get(2) is second
    assert len(one.sent) == 1


def test_one_that_the_registry_does_not_have_is_unknown_for_a_while() -> None:
    one = Asking()
    one.schemas.get(2)
    one.schemas.on_answer(SchemaAnswer(2, None))
    with pytest.raises(UnknownSchema, match="no schema with the id 2"):
        one.schemas.get(2)
    one.now = UNKNOWN_S
    assert one.schemas.get(2) is None
    assert one.sent == [SchemasWanted((2,))] * 2


def test_records_of_many_unknown_ids_are_judged_together_however_long_the_registry_takes() -> None:
    """A batch is decoded when nothing of it is waited for; until then its records are offered again and again."""
    one = Asking()
    batch = range(2, 20 * WAITING_MAX)

    def offer() -> int:
        waiting = 0
        for number in batch:
            with suppress(UnknownSchema):
                waiting += one.schemas.get(number) is None
        return waiting

    for _ in range(20):
        offer()
        one.now += UNKNOWN_S / 6
        offer()
        asked = one.sent.copy()
        one.sent.clear()
        for message in asked:
            assert isinstance(message, SchemasWanted)
            one.schemas.on_answer(SchemaAnswer(message.ids[0], None))
    assert offer() == 0
    one.now += UNKNOWN_S
    assert offer() == len(batch), "each is asked for again after a while, nevertheless"


def test_a_schema_that_cannot_be_read_is_reported_once() -> None:
    one = Asking()
    for number in (2, 3, 2):
        one.schemas.refuse(number, "why")
    assert one.sent == [SchemaUnfit(2, "why"), SchemaUnfit(3, "why")]


@pytest.mark.parametrize("number", [0, -1, ID_MAX + 1, 2**32 - 1])
def test_what_is_no_id_is_not_asked_for(number: int) -> None:
    one = Asking()
    with pytest.raises(UnknownSchema):
        one.schemas.get(number)
    assert one.sent == []


def test_records_that_name_any_number_of_ids_fill_no_memory() -> None:
    one = Asking()
    for number in range(2, 3 * WAITING_MAX):
        one.schemas.get(number)
    assert len(one.sent) == WAITING_MAX
    for number in range(2, UNKNOWN_MAX + 100):
        one.schemas.on_answer(SchemaAnswer(number, None))
    assert len(one.schemas._unknown) == UNKNOWN_MAX
    assert one.schemas.get(3) is None  # the oldest are asked for again
