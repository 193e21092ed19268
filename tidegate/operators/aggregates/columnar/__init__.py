"""Whole columns of accumulators, with Polars. Imported only where rows are processed."""
