"""Whole columns of accumulators, with Polars: imported only where rows are processed."""
