"""The commands for dead letters: `command.py` is what people type, `topic.py` reads, `replay.py` writes."""
