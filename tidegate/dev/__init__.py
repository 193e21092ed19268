"""Tools for development and first steps: a broker, the demo, prepared class archives."""
