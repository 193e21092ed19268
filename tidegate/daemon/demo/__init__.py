"""`tidegate demo`: the main job on real parts, with a kill in the middle and an independent check at the end.

`orders.py` makes the input, `verify.py` recomputes the output from it without any of the engine's code, `show.py` runs
the whole thing. The chaos tests use the same generator and the same check.
"""
