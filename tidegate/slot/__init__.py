"""A slot: the process on Spark's executors. Worker, control link, deployment, data connections, uploads."""

POLARS_THREADS = "1"
"""POLARS_MAX_THREADS in a slot's environment, set before Polars is imported: Spark expects a process per core."""
