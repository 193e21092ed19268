"""For development and for trying things: a broker, the demo, prepared class archives."""
