"""The driver process: attempts, recovery, decisions, control server, checks before a start, HTTP, metrics."""
