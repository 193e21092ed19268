"""Barrier handlers: what a subtask does with the barriers of its input channels. Pure state machines.

`handler.py` defines the vocabulary, `choice.py` chooses the handler, `aligner.py` is the exactly-once handler and
`tracker.py` the at-least-once handler (contract lines B01-B42). Where barriers may overtake rows, `alternating.py`
assigns each checkpoint to the aligner or to `unaligner.py` (B43-B50).
"""
