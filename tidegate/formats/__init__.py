"""Formats, which convert bytes to columns and back: their contract, the formats themselves, and shared code."""
