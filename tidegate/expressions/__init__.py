"""Spark SQL expressions: parsed and typed without Polars, compiled to Polars in a slot."""
