"""Aggregate functions: one module per family, and one contract (`contract.py`) for running totals, windows and changes.

`registry.py` finds the families. They share `exact.py` (sums), `values.py` (orders of values),
`columnar/` (Polars), and `contract.py` (FILTER and IGNORE
NULLS).
"""
