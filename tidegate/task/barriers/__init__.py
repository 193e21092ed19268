"""Barrier handlers: what a subtask does with the barriers of its input channels. Pure state machines.

`handler.py` has the vocabulary, `choice.py` the choice between them, `aligner.py` the exactly-once one, `tracker.py`
the at-least-once one (contract lines B01-B42). Where barriers may overtake rows, `alternating.py` gives each
checkpoint to the aligner or to `unaligner.py` (B43-B50).
"""
