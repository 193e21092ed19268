"""The commands for dead letters: `command.py` defines the commands, `topic.py` reads the topic, `replay.py` writes
records.
"""
