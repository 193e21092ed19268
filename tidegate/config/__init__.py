"""What a user may write: models of the pipeline file, loading with positions, errors, JSON Schema."""
