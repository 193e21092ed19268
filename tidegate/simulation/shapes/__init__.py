"""Pipelines whose whole output can be said in advance, record by record: an oracle that knows nothing of the engine.

A shape is the words of a pipeline file, how its input records are dressed, and in plain Python the records that must
come out, in the order of each lane. `oracle.py` compares. `workload.py` draws which shape a schedule has.
"""
