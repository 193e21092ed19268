"""`keep: last`: passes rows in the order of event time, per key. Of equal times, the row that arrives last wins.

Rows of a key are emitted with event times that never decrease, so the last record of a key in a compacted topic is the
last one by event time.
"""

from __future__ import annotations

from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.operators.event_time import TIME
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.keep import LastOperator
from tidegate.operators.runtime import OperatorRuntime, Out


class LastRuntime(KeyedRuntime[LastOperator], OperatorRuntime):
    """Passes a row if its event time is not before the last one of its key."""

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        keys = self.keys_of(batch)
        lasts = {key: value[0] for key, value in self.look_up(keys).items() if value is not None}
        new: dict[Any, tuple[int]] = {}
        passing: list[int] = []
        for place, (key, time) in enumerate(zip(keys, batch[TIME].to_list(), strict=True)):
            if key not in lasts or time >= lasts[key]:
                lasts[key] = time
                new[key] = (time,)
                passing.append(place)
        if new:
            self.state.put_many(new, new.values())
            self.pass_on(batch, passing, out)
