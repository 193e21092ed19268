"""Schemas of the registry in a slot: known ones, and those requested from the daemon."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from typing_extensions import override

from tidegate.formats.schemas import Schemas, SchemaText, UnknownSchema
from tidegate.task.messages import SchemaAnswer, SchemasWanted, SchemaUnfit, SlotMessage

WAITING_MAX: Final = 100
"""Ids requested at the same time; others follow once these are answered. Records may name any number."""
ID_MAX: Final = 2**31 - 1
"""No registry assigns higher ids; some answer such a request as if for an unknown path."""
UNKNOWN_MAX: Final = 10_000
UNKNOWN_S: Final = 60.0
"""Seconds for which an id counts as unknown to the registry, since its last use while other ids are pending.

A batch is decoded once all of its ids are known or unknown, and the first ones must not be requested again meanwhile.
"""


class SlotSchemas(Schemas):
    """The schemas of one slot, for the loop's thread; `send` returns at once."""

    def __init__(
        self,
        known: Iterable[SchemaText],
        send: Callable[[SlotMessage], None],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`known` are the schemas in the plan."""
        self._known: dict[int | str, SchemaText] = {one.id: one for one in known if one.id}
        self._send = send
        self._elapsed = elapsed
        self._waiting: set[int | str] = set()
        self._unknown: OrderedDict[int | str, float] = OrderedDict()
        self._unfit: set[int | str] = set()

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        found = self._known.get(schema_id)
        if found is not None:
            return found
        if isinstance(schema_id, int) and not 0 < schema_id <= ID_MAX:
            raise UnknownSchema(schema_id)
        since = self._unknown.get(schema_id)
        if since is not None:
            now = self._elapsed()
            if now - since < UNKNOWN_S:
                if self._waiting:
                    self._unknown[schema_id] = now
                    self._unknown.move_to_end(schema_id)
                raise UnknownSchema(schema_id)
            del self._unknown[schema_id]
        if schema_id not in self._waiting and len(self._waiting) < WAITING_MAX:
            self._waiting.add(schema_id)
            self._send(SchemasWanted((schema_id,)))
        return None

    @override
    def refuse(self, schema_id: int | str, why: str, /) -> None:
        if schema_id not in self._unfit and len(self._unfit) < UNKNOWN_MAX:
            self._unfit.add(schema_id)
            self._send(SchemaUnfit(schema_id, why))

    def on_answer(self, answer: SchemaAnswer) -> None:
        """Handles the daemon's answer."""
        self._waiting.discard(answer.id)
        if answer.schema is not None:
            self._known[answer.id] = answer.schema
            return
        self._unknown[answer.id] = self._elapsed()
        while len(self._unknown) > UNKNOWN_MAX:
            self._unknown.popitem(last=False)
