"""Keyed state, list state, their backends and their snapshots."""
