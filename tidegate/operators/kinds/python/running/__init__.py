"""What runs of a Python step. Imported only in slots, because it imports Polars and users' code."""
