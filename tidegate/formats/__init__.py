"""Bytes to columns and back: JSON and raw."""
