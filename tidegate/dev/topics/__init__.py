"""Topics of any cluster, for a first pipeline: create, list, fill and read. Begin with `command.py`."""
