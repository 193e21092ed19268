"""The wire format around JSON: a zero byte, the id of a schema, and the text."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import polars as pl
from typing_extensions import override

from tidegate.formats.contract import Columns, Decoded, Decoder, Encoder, Messages, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.json.writer import json_objects
from tidegate.formats.schema_ids import PREFIX_BYTES, find_schema, refuse_schema, schema_id_of
from tidegate.formats.schemas import NO_OPTIONS, SchemaKind, Schemas, SchemaText
from tidegate.formats.text import ExpressionEncoder


class PrefixedDecoder(Decoder):
    """Decodes records whose id must be that of a JSON Schema in the registry."""

    def __init__(self, plain: JsonDecoder, schemas: Schemas) -> None:
        self._plain = plain
        self._schemas = schemas

    @override
    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        return self.decode_values(messages.values)

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded | WaitingForSchema:
        """Decodes values without other parts of messages."""
        prefixes = {None if value is None else value[:PREFIX_BYTES] for value in values}
        judged = {prefix: self._judge(prefix) for prefix in prefixes}  # requests all schemas at once
        waiting = next((one for one in judged.values() if isinstance(one, WaitingForSchema)), None)
        if waiting is not None:
            return waiting
        wrong = {prefix: one for prefix, one in judged.items() if isinstance(one, RecordFailure)}
        if not wrong:
            return self._plain.decode_values([value and value[PREFIX_BYTES:] for value in values])
        rows: list[int] = []
        failures: list[RecordFailure] = []
        for row, value in enumerate(values):
            found = wrong.get(None if value is None else value[:PREFIX_BYTES])
            if found is None:
                rows.append(row)
            else:
                failures.append(RecordFailure(row, found.kind, found.message))
        frame, bad = self._plain.decode_values([(values[row] or b"")[PREFIX_BYTES:] for row in rows])
        failures += [RecordFailure(rows[one.row], one.kind, one.message) for one in bad]
        return Decoded(frame, sorted(failures, key=attrgetter("row")))

    def _judge(self, prefix: bytes | None) -> RecordFailure | WaitingForSchema | None:
        """Returns the failure of records with this prefix, whose `row` has no meaning; None if they can be read."""
        found = find_schema(prefix, self._schemas, FailureKind.MALFORMED_JSON)
        if not isinstance(found, SchemaText):
            return found
        if found.kind is not SchemaKind.JSON:
            return refuse_schema(self._schemas, schema_id_of(prefix or b""), NO_OPTIONS, f"it is in {found.kind}")
        return None


def prefixed_encoder(columns: Columns, prefix: bytes) -> Encoder:
    """Returns an encoder of objects with a prefix."""
    value = json_objects(columns)
    return ExpressionEncoder(pl.lit(prefix) + value if prefix else value)
