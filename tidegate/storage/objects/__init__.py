"""Checkpoint storage in object stores, with obstore (the extra `object-stores`)."""
