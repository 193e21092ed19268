"""How values of each type are in files, and what a file says about that: snapshots of serializers, found by name."""
