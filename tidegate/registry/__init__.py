"""The schema registry: asked by the daemon alone, over its REST interface. Begin with `client.py`."""
