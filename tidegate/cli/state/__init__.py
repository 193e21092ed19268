"""`tidegate state`: the contents of checkpoints and savepoints as tables."""
