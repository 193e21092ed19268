"""The journal of checkpoints and the files of savepoints in checkpoint storage: written, read, verified, removed."""
