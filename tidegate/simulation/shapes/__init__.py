"""Kinds of pipelines, each with the settings of its file and the form of its records.

The output of a `DerivedShape` follows from its input record by record. The shape derives in plain Python which records
must come out, in the order of each lane, and `oracle.py` compares. The outputs of the other shapes depend on windows,
or on the order in which records of several partitions meet; `simulation/oracle.py` and `windows.py` judge them by
topic.

`registry.py` names all shapes, and `workload.py` draws the shape of a schedule.
"""
