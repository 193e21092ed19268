"""Barrier handlers: what a subtask does with the barriers of its input channels. Pure state machines.

`handler.py` has the vocabulary and the choice between them, `aligner.py` the exactly-once one, `tracker.py` the
at-least-once one. Contract lines B01-B42 (seed 001).
"""
