"""The process: Spark, control server, worker entry, HTTP, metrics, command line, development broker."""
