"""`tidegate demo`: the main job on real parts, with a kill in the middle and an independent check at the end.

`orders.yaml` is the pipeline. `verify.py` makes the input, and recomputes the output without the engine's code.
`show.py` runs everything and prints the progress, `daemon.py` is the daemon as a subprocess, and `command.py` is the
command line. The chaos tests use the same generator and the same check.
"""

from tidegate.dev.demo.command import demo

__all__ = ["demo"]
