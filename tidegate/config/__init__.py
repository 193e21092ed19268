"""The pipeline file: models of its settings, loading with positions, errors, JSON Schema."""
