"""`tidegate demo`: the main job on real parts, with a kill in the middle and an independent check at the end.

`orders.py` makes the input, `orders.yaml` is the pipeline, and `verify.py` recomputes the output without the engine's
code. `show.py` runs everything and prints the progress, `daemon.py` is the daemon as a subprocess, and
`command.py` is the command line. The chaos tests use the same generator and the same check.
"""

from tidegate.dev.demo.command import demo

__all__ = ["demo"]
