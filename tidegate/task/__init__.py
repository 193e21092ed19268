"""The data path of a slot: elements, channels, barrier handlers, and the loop."""
