"""What runs of a Python step in a slot. Imported only there."""
