"""A slot: the process that Spark's executors run. Worker, control link, deployment, data connections, uploads."""
