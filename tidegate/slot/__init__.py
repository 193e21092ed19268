"""A slot: the process that Spark's executors run. Worker, control link, deployment, data connections, uploads."""

POLARS_THREADS = "1"
"""The environment's POLARS_MAX_THREADS of a slot, before Polars is imported: Spark's model is a process per core."""
