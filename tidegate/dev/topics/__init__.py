"""Topics of any cluster, for a first pipeline: create, list, write and read. Begin with `command.py`."""
