"""Kinds of pipelines, each with what its file sets and what its records look like.

The output of a `DerivedShape` follows from its input record by record: it says in plain Python which records must come
out, in the order of each lane, and `oracle.py` compares. The outputs of the other shapes depend on the order in which
records of several partitions meet, or on windows; `simulation/oracle.py` and `windows.py` judge them by topic.
`registry.py` names all shapes, `workload.py` draws which one a schedule has.
"""
