"""The driver's process: attempts, recovery, decisions, control server, checks before a start, HTTP, metrics."""
