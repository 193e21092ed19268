"""Barrier handlers: what a subtask does with the barriers of its input channels. Pure state machines.

`handler.py` defines the vocabulary, `choice.py` chooses the handler, `aligner.py` is the exactly-once handler and
`tracker.py` the at-least-once handler (contract lines B01-B42). Where barriers may overtake rows, `alternating.py`
assigns each checkpoint to the aligner or to `unaligner.py` (B43-B50).

No handler knows of channels that end (B42). A source that has read everything sends the end of event time, stays, and
answers each trigger with a barrier, so its channels deliver every later barrier until the attempt ends.
"""
