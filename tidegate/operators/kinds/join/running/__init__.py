"""The runtime of `join`: `runtime.py`, with the state of a side in `side.py`."""
