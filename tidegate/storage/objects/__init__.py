"""Checkpoint storage in object stores, through obstore (the extra `object-stores`)."""
