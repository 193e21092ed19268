"""What runs of `sample`."""

from __future__ import annotations

import polars as pl

from tests.operators.kinds.sample import SampleOperator
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.runtime import Out


class SampleRuntime(KeyedRuntime[SampleOperator]):
    """The state has how many records of a key have come."""

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        keys = self.keys_of(batch)
        seen = {key: value[0] if value else 0 for key, value in self.look_up(keys).items()}
        passing = []
        for place, key in enumerate(keys):
            if seen[key] % self.operator.every == 0:
                passing.append(place)
            seen[key] += 1
        self.state.put_many(seen, [(count,) for count in seen.values()])
        self.pass_on(batch, passing, out)
