"""Pipelines without Kafka and Spark, for the cases of `tidegate test` and for `tidegate preview`."""
