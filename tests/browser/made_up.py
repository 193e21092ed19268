"""Answers of the resources that read Kafka, the storage or slots, which a situation does not have: made up."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec

from tests.browser.recording import Recording
from tests.browser.situations import HOSTILE
from tidegate.daemon.http.resources import Resource, ResourceQuery
from tidegate.daemon.reading.dead_letters import (
    DeadLetterEntry,
    DeadLetters,
    LetterBytes,
    LetterHeader,
    LetterOrigin,
    LetterPayload,
)
from tidegate.daemon.reading.state import KeyColumn, StateContents, StateQuery, StateSize
from tidegate.daemon.taps import TapAnswer, TapEnd, TapQuery

NOTHING = LetterBytes(None, None, None)


def make_up(name: str, recording: Recording) -> list[Resource[Any]]:
    """Returns the resources of the situation `name`, for everybody who may read."""
    letters = _dead_letters(name, recording.now_ms())
    return [
        _pretend("dead-letters", DeadLetters, ResourceQuery, lambda _: letters),
        _pretend("state", StateContents, StateQuery, lambda query: _state(recording, query)),
        _pretend("tap", TapAnswer, TapQuery, lambda query: _tap(name, query)),
    ]


def _pretend(name: str, answer: Any, query: Any, make: Callable[[Any], object]) -> Resource[Any]:
    async def read(given: Any) -> object:
        return make(given)

    return Resource(name=name, summary="Made up.", answer=answer, read=read, query=query)


def _bytes(text: str) -> LetterBytes:
    encoded = text.encode()
    return LetterBytes(text, base64.b64encode(encoded).decode(), len(encoded))


def _dead_letters(name: str, now_ms: int) -> DeadLetters:
    count = {"dead-letters": 100, "hostile": 3}.get(name, 0)
    letters = [_letter(index, now_ms, hostile=name == "hostile") for index in range(count)]
    return DeadLetters("shop-dead", "kafka", letters, True, False, "tidegate dead-letters replay shop.yaml")


def _letter(index: int, now_ms: int, *, hostile: bool) -> DeadLetterEntry:
    in_source = index % 9 != 4
    row = {"id": 70_000 + index, "customer": "ann", "amount": 12.5, "quantity": 0, "at": "2026-11-30T11:59:00Z"}
    reason = "division by zero in `amount / quantity`"
    if in_source:
        row["amount"], reason = "twelve", "Expected `number | null`, got `string` - at `$.amount`"
    text = json.dumps(row)
    if hostile:
        text, reason, row = HOSTILE, HOSTILE, {"customer": HOSTILE, HOSTILE: 1}
    value, partition = _bytes(text), index % 6
    written_ms = now_ms - 1_400 * index
    return DeadLetterEntry(
        partition=0,
        offset=400 - index,
        at_ms=written_ms,
        step="orders" if in_source else "valid",
        kind="WRONG_TYPE" if in_source else "DIVIDE_BY_ZERO",
        reason=reason,
        tries=0,
        source=LetterOrigin("kafka", "orders", partition, 88_100 - index, written_ms - 900),
        key=_bytes(HOSTILE if hostile else f"customer-{index % 7}"),
        headers=[LetterHeader(HOSTILE if hostile else "trace", _bytes("4bf92f3577b34da6"))],
        payload=LetterPayload(
            value.text, value.base64, value.size_bytes, None if in_source and not hostile else _raw(row), None
        ),
        replayed_to="orders" if index == 7 else None,
        replay=f"tidegate dead-letters replay shop.yaml --partition 0 --offset {400 - index}",
    )


def _raw(row: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(row))


def _state(recording: Recording, query: StateQuery) -> StateContents:
    kept = recording.metrics.checkpoints
    if not kept:
        return StateContents(checkpoint=None, completed_at_ms=None)
    newest = kept[0]
    if query.key:
        rows = [{"customer": "ann", "window_start": "2026-11-30T11:59:00Z", "orders": 3, "revenue": 61.5}]
        command = f"tidegate state read shop.yaml {query.step} {' '.join(f'--key {one}' for one in query.key)}"
        return StateContents(
            checkpoint=newest.id,
            completed_at_ms=newest.triggered_at_ms,
            rows=[_raw(row) for row in rows],
            command=command,
        )
    time = KeyColumn("time", "bigint")
    order, customer = [time, KeyColumn("id", "bigint")], [time, KeyColumn("customer", "string")]
    states = [
        StateSize("paid_orders", "left_rows", "keyed", order, 8, 3_100_000),
        StateSize("paid_orders", "right_rows", "keyed", order, 8, 2_200_000),
        StateSize("paid_orders", "watermark", "union", [], 4, 2_300),
        StateSize("per_minute", "slices", "keyed", customer, 4, 96_000),
        StateSize("per_minute", "watermark", "union", [], 4, 2_300),
    ]
    return StateContents(checkpoint=newest.id, completed_at_ms=newest.triggered_at_ms, states=states)


def _tap(name: str, query: TapQuery) -> TapAnswer:
    customer = HOSTILE if name == "hostile" else "ann"
    rows = [{"id": 70_000 + at, "customer": customer, "amount": 12.5 + at} for at in range(min(3, query.rows))]
    return TapAnswer(query.step, [msgspec.Raw(msgspec.json.encode(row)) for row in rows], False, TapEnd.ROWS)
