"""How values of each type are stored in files, and how files describe it: snapshots of serializers, found by name."""
