"""Pending and completed checkpoints, the journal, permits, recovery decisions. Pure."""
