"""State as tables: reading, comparing and creating checkpoints and savepoints row by row. Start with `table.py`."""
