"""Tidegate from Python: pipelines in notebooks and tests, and cases as items of pytest (docs/python-api.md)."""
