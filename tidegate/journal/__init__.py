"""The journal and the files of savepoints in checkpoint storage: writing, reading, verifying and removing them."""
