"""Calls to something outside, on a thread of their own: the common part of the kinds `async` and `http`.

`caller.py` runs calls outside the slot loop, with retries. `runtime.py` is the operator, around the queue of
`operators/async_queue.py`. `spec.py` has the keys and the spec.
"""
