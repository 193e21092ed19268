"""Bytes to columns and back: what a format is, the formats that there are, and what all of them share."""
