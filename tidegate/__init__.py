"""Tidegate moves data from Kafka to Kafka exactly once, on the Spark executors you already run."""

__version__ = "0.1.0"
