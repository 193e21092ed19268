"""Users' Python code, the same for `async` and `python` steps: found, described, sent to the slots, and loaded there.

`modules.py` reads the modules next to the pipeline file and imports them from memory in a slot. `describe.py`
determines what a reference such as `visits:Visits` is. `probe.py` does so in a process of its own, because the daemon
never imports user code. `files.py` has what `code` of the pipeline file lists, and `shipping.py` brings
it to the machines of the slots. `failure.py` renders an exception with the line of the user's code that raised it.
"""
