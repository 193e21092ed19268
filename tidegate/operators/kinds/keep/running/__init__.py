"""What runs: `last.py`, `updating.py` and `closing.py`."""
