"""Resources that are read by a process of their own: dead letters, and the rows of the state.

Kafka's client and Polars are never loaded into the daemon's process, and what a record or a state holds cannot fill its
memory. `child.py` starts such a process, the modules `read_...` are what it runs.
"""
