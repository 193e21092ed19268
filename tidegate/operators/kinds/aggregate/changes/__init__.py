"""Totals of changes (ADR 51): `runtime.py` has what runs, `tallies.py` and `extremes.py` the functions, `kept.py` what
the plan declares for them.
"""
