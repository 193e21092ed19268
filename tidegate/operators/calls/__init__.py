"""Calls to something outside, on a thread of their own: what the kinds `async` and `http` share.

`attempts.py` makes one call, with retries; `caller.py` runs them outside the slot loop; `runtime.py` is the operator,
around the queue of `operators/async_queue.py`; `spec.py` has the keys and the spec; `user_code.py` finds a function of
the user's, in the daemon and in the slots.
"""
