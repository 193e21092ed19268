"""What the daemon's process and a slot's have in common: logs, limits of open files, the key of their connections."""
