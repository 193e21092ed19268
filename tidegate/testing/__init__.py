"""Runs a pipeline without Kafka and Spark: the cases of `tidegate test`, and `tidegate preview`."""
