"""The schema registry, which only the daemon accesses, over its REST interface. Start with `client.py`."""
