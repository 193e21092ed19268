"""What runs in a slot: elements, channels, barrier handlers, the loop."""
