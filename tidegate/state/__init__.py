"""Keyed state: backends and their snapshots."""
