"""Calls to something outside, on a thread of their own: the common part of the kinds `async` and `http`.

`attempts.py` makes one call, with retries. `caller.py` runs calls outside the slot loop. `runtime.py` is the operator,
around the queue of `operators/async_queue.py`. `spec.py` has the keys and the spec.
"""
