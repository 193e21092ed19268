"""The runtimes of `keep`: `last.py`, `updating.py` and `closing.py`."""
