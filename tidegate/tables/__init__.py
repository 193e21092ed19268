"""State as tables: a checkpoint or a savepoint read row by row, compared, and made from rows. Start with `table.py`."""
