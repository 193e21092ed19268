"""The checkpoint protocol as pure decisions: pending and completed checkpoints, permits, recovery, upgrades."""
