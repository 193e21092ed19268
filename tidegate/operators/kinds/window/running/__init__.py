"""The runtimes of a step with windows. Imported only where rows are processed."""
