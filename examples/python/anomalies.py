"""How unusual a reading is: its distance from the mean of the earlier readings of its device."""

from typing import Any

import polars as pl

from tidegate.python import Out, Settings, Step, Value


class Deviations(Step):
    """Adds the distance in standard deviations, NULL while too little is known: Welford's method on whole batches."""

    count = Value("bigint", default=0)
    mean = Value("double", default=0.0)
    squares = Value("double", default=0.0)  # the sum of the squared distances from the mean

    def open(self, settings: Settings) -> None:
        self.enough = settings["enough"]

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        states: dict[str, Value[Any]] = {"count": self.count, "mean": self.mean, "squares": self.squares}
        known = frame.with_columns(state.get_many(frame).alias(name) for name, state in states.items())
        x = pl.col("value") - pl.col("mean")
        count = pl.col("count") + pl.int_range(1, pl.len() + 1)
        after = known.select(
            "device",
            count.over("device").alias("count"),
            (pl.col("mean") + x.cum_sum() / count).over("device").alias("mean"),
            (pl.col("squares") + (x**2).cum_sum() - x.cum_sum() ** 2 / count).over("device").alias("squares"),
        )
        earlier = after.select(pl.coalesce(pl.col(name).shift().over("device"), known[name]) for name in states)
        spread = (pl.col("squares") / pl.col("count")).sqrt()
        judged = (pl.col("count") >= self.enough) & (spread > 0)
        distance = pl.when(judged).then((frame["value"] - pl.col("mean")) / spread)
        out.emit(frame.with_columns(earlier.select(distance.round(2).alias("deviations"))))
        last = after.unique("device", keep="last", maintain_order=True)
        for name, state in states.items():
            state.set_many(last, last[name])
