"""`keep: last`: rows in the order of event time, per key. Of equal times the row that arrives last counts.

Whatever comes out of it for a key is not older than what came out before, so the last record of a key in a compacted
topic is the last one by event time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from tidegate.formats.columns import plain_values
from tidegate.ids import StateName
from tidegate.operators.event_time import TIME
from tidegate.operators.kinds.keep import LastOperator
from tidegate.operators.runtime import OperatorState, Out, Runtime, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.keygroups import key_groups_of_keys


class LastRuntime(Runtime):
    """See the module."""

    def __init__(self, operator: LastOperator, slot: Slot) -> None:
        self._keys = list(operator.keys)
        self._output = [name for name, _ in operator.columns]
        types = dict(operator.columns)
        kinds = [types[key] for key in self._keys]
        (declaration,) = operator.states(slot.max_parallelism)
        self._times = slot.open_state(
            operator.name, declaration, lambda rows: key_groups_of_keys(rows, kinds, slot.max_parallelism)
        )

    @property
    def states(self) -> Mapping[StateName, OperatorState]:
        """See OperatorRuntime."""
        return {self._times.declaration.name: self._times}

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # noqa: ARG002  # one input
        """See OperatorRuntime."""
        columns = [plain_values(batch[key]) for key in self._keys]
        keys: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        known = dict.fromkeys(keys)
        found = zip(known, self._times.get_many(known), strict=True)
        lasts = {key: value[0] for key, value in found if value is not None}
        new: dict[Any, tuple[int]] = {}
        passing: list[int] = []
        for place, (key, time) in enumerate(zip(keys, batch[TIME].to_list(), strict=True)):
            if key not in lasts or time >= lasts[key]:
                lasts[key] = time
                new[key] = (time,)
                passing.append(place)
        if new:
            self._times.put_many(new, new.values())
            passed = batch if len(passing) == batch.height else batch[passing]
            out.emit(passed[self._output + system_columns(batch)])
