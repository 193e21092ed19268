"""Aggregates whose results do not depend on the order and grouping in which rows are merged (ADR 36).

`parts.py` says what an accumulator consists of, without Polars; `contract.py` what an aggregate can do; `registry.py`
makes one of a call; `choosing.py` has the rows that it counts. The other modules are the functions.
"""
