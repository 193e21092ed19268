"""Totals of changes (ADR 51). `runtime.py` has the runtime."""
