"""The commands for dead letters: `command.py` defines them, `replay.py` writes records."""
