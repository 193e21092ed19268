"""`tidegate state`: what checkpoints and savepoints hold, as tables."""
