"""The probability that a payment is fraud, by a model that was trained elsewhere."""

import json

import polars as pl

from tidegate.python import Out, Settings, Step


class Fraud(Step):
    """Applies a logistic regression to whole batches. The pipeline file lists the model under `code`."""

    def open(self, settings: Settings) -> None:
        model = json.loads(self.file(settings["model"]).read_text(encoding="utf-8"))
        weighted = [pl.col(name).cast(pl.Float64) * weight for name, weight in model["weights"].items()]
        logit = pl.sum_horizontal(weighted) + model["intercept"]
        self.score = (1 / (1 + (-logit).exp())).round(4)

    def process_batch(self, frame: pl.DataFrame, out: Out) -> None:
        out.emit(frame.select("id", "amount", score=self.score))
